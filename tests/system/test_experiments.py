"""Experiments: quick versions leave well-formed records, what they share does what it says, parts of those on FedDRO meet brute force."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from experiment_files import FOLDER, module
from torch import Tensor

from rookery import Batch, Data, FedDRO, Federation, Model, Program
from rookery.errors import DataError, Diverged
from rookery.problems.testproblems import counterexample
from rookery.training import Run


def quick(experiment: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The rows that an experiment's quick version leaves in its record, which is well-formed."""
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--jobs", "1", "--out", str(out)])
    module(experiment, "run").main()
    found = json.loads((out / "results.json").read_text())
    assert set(found) == {"command", "commit", "date", "machine", "minutes", "rows"}
    for row in found["rows"]:
        assert set(row) == {"method", "setting", "metric", "mean", "std", "seeds", "paper"}
        assert row["seeds"] >= 1
        assert all(row[key] is None or math.isfinite(row[key]) for key in ("mean", "std", "paper"))
    rows: list[dict[str, Any]] = found["rows"]
    return rows


@pytest.mark.parametrize(("experiment", "plots", "methods"), [
    ("template", ("accuracy",), {"FedAvg", "SCAFFOLD"}),
    pytest.param("fair-adult", ("curves-published", "curves-fair", "frontier"),
                 {"FedDRO", "GCIVR", "Unconstrained", "FedAvg", "Reweighing"}, marks=pytest.mark.slow),
    ("feddro-theory", ("laws",), {"FedDRO", "FedAvg, Case I"}),
    pytest.param("localscgdam-theory", ("speedup",), {"LocalSCGDAM"}, marks=pytest.mark.slow),
    pytest.param("auc-images", ("published", "tuned", "ablation", "cats"), {"LocalSCGDAM", "CoDA", "FeDXL1"}, marks=pytest.mark.slow),
    pytest.param("auprc", ("published", "tuned", "inner", "steps", "natural", "longer"), {"FedAvg, stratified", "CODA+", "SOAP"},
                 marks=pytest.mark.slow),
    pytest.param("maml-sine", ("curves", "sinusoid"), {"FCSG", "Acc-FCSG-M", "Local-SCGDM", "FedAvg", "From scratch"},
                 marks=pytest.mark.slow),
    pytest.param("maml-omniglot", ("curves",), {"FCSG", "FCSG-M", "Acc-FCSG-M", "Local-SCGD", "Local-SCGDM"}, marks=pytest.mark.slow),
    pytest.param("personalised", ("2-classes",), {"FCSG", "Acc-FCSG-M", "FedAvg", "FedAvg, fine-tuned", "Local only"},
                 marks=pytest.mark.slow),
    pytest.param("heart-flamby", (), {"Pooled", "FedAvg", "FedProx", "SCAFFOLD", "FedAdam"}, marks=pytest.mark.slow),
    pytest.param("calibration", (), {"FedAvg", "FedAvg, class-weighted", "FedDRO, group DRO"}, marks=pytest.mark.slow),
    pytest.param("dro-imbalanced", ("published", "fair", "local-steps", "equal-rounds", "over-local-steps"),
                 {"FedDRO", "FastDRO", "PDSGD", "MBSGD"}, marks=pytest.mark.slow)])
def test_the_quick_version_runs_and_leaves_a_record(experiment: str, plots: tuple[str, ...], methods: set[str], tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = quick(experiment, tmp_path, monkeypatch)
    assert "|---|" in capsys.readouterr().out
    assert {row["method"] for row in rows} >= methods
    assert all(isinstance(row["setting"], dict) for row in rows)
    assert all((tmp_path / f"{name}.png").stat().st_size > 5000 for name in plots)


@pytest.mark.slow
def test_the_counterexample_comes_out_again_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {(row["method"], row["setting"], row["metric"]): row["mean"]
                for row in json.loads((FOLDER / "fedavg-counterexample" / "results.json").read_text())["rows"]}
    rows = quick("fedavg-counterexample", tmp_path, monkeypatch)
    assert len(rows) == 14
    for row in rows:
        assert row["mean"] == pytest.approx(recorded[row["method"], row["setting"], row["metric"]], abs=1e-9)


# what they share


@pytest.mark.slow
def test_the_command_runs_from_the_projects_root_and_starts_processes(tmp_path: Path) -> None:
    """Started processes read run.py again, and must find what it imports."""
    subprocess.run([sys.executable, "experiments/template/run.py", "--quick", "--jobs", "2", "--out", str(tmp_path)], check=True,
                   cwd=FOLDER.parent, env={**os.environ, "PYTHONPATH": str(FOLDER.parent / "src")}, capture_output=True, timeout=300)
    assert len((tmp_path / "quick.jsonl").read_text().splitlines()) == 4
    assert (tmp_path / "results.json").exists()


def test_data_that_cannot_be_read_have_a_stand_in(capsys: pytest.CaptureFixture[str]) -> None:
    common = module("", "common")

    def missing(name: str) -> None:
        raise DataError(f"no folder of {name}")

    assert common.available("mnist", "digits", missing) == "digits"
    assert "digits stands in for mnist, which cannot be read: no folder of mnist" in capsys.readouterr().out
    assert common.available("mnist", "digits", lambda name: None) == "mnist"


def test_half_a_run_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a study that was interrupted would keep it as that of the trial."""
    common, k = module("", "common"), counterexample()
    fed = Federation(k.problem, k.data)
    algorithm = FedDRO(0.02, 0.3, 1)
    state = algorithm.init(fed, k.x0)
    assert common.run_to_end(algorithm, fed, state, 2, lambda s: {"x": float(s.x)}).rounds == 2
    for reason, error in (("interrupted", KeyboardInterrupt), ("diverged", Diverged)):
        monkeypatch.setattr(common, "run", lambda *a, reason=reason, **how: Run(state, reason=reason))
        with pytest.raises(error):
            common.run_to_end(algorithm, fed, state, 2, lambda s: {})
    assert common.run_to_end(algorithm, fed, state, 2, lambda s: {}, may_diverge=True).reason == "diverged"


@pytest.mark.parametrize(("at", "asked"), [(0.9, {0.1, 0.3, 0.9, 2.7}), (0.2, {0.1, 0.3, 0.033}), (1e9, {0.1, 0.3, 0.9, 2.7, 8.1})])
def test_a_grid_grows_where_its_end_is_best(at: float, asked: set[float], tmp_path: Path) -> None:
    """Step sizes first, then what the method has of further choices; at 1e9 the best one is out of reach."""
    tuning, seen = module("", "tuning"), list[dict[str, Any]]()

    def work(trial: dict[str, Any]) -> dict[str, Any]:
        seen.append(trial)
        beta = trial["beta"] or 0.0
        return {"loss": None if trial["lr"] > at else (math.log(trial["lr"] / at)) ** 2 + (beta - 0.9) ** 2, "seconds": 0.0}

    args = SimpleNamespace(out=tmp_path, jobs=1, done=False)
    s = tuning.Tuned(tmp_path, args, True, work, "loss", larger=False)
    some = [{"method": "A", "steps": 8, "beta": 0.5}, {"method": "B", "steps": 8, "beta": None}]
    found = s.choose(some, (0.3, 0.1), {"beta": (0.5, 0.9)}, (100, 101), growth=3, steps=4)
    best = max(lr for lr in asked if lr <= at)
    assert found == [{**some[0], "lr": best, "beta": 0.9}, {**some[1], "lr": best}]
    assert {trial["lr"] for trial in seen} == asked
    assert {trial["steps"] for trial in seen} == {4}
    assert {trial["seed"] for trial in seen} == {100, 101}


def test_a_trial_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """What is asked of an interrupted run and what is asked in one go come out alike."""
    common, k = module("", "common"), counterexample()
    algorithm = FedDRO(0.02, 0.3, 1)
    ends = []
    for folder, lengths in ((tmp_path / "parts", (2, 5)), (None, (5,))):
        for rounds in lengths:
            fed = Federation(k.problem, k.data)
            done = common.run_to_end(algorithm, fed, algorithm.init(fed, k.x0), rounds, lambda s: {"x": float(s.x)}, folder=folder)
        ends.append((done.rounds, done.state.x, done.column("x"), done.column("bytes")))
    assert ends[0] == ends[1]


# the theory's problem


@dataclass(frozen=True)
class Ask(Program):
    """∇h_k + ∇g_k·f'(z) at a given z, and g_k."""

    def gradient(self, c: Any, x: Tensor, z: Tensor) -> Tensor:
        b = c.draw(20_000)
        return c.h_gradient(x, b) + c.g_vjp(x, b, c.f_gradient(z))

    def inner(self, c: Any, x: Tensor) -> Tensor:
        return c.g(x, c.draw(20_000))


@pytest.mark.parametrize("differ", [False, True])
def test_the_exact_gradient_is_the_mean_of_the_clients_at_the_common_inner_value(differ: bool) -> None:
    sided = module("feddro-theory", "sided")
    x = torch.tensor([0.7, -0.4, 0.1, 1.3])
    fed = Federation(sided.problem(4, 1, differ), Data.streams(["a", "b", "c", "d"]), seed=3)
    z = fed.mean(fed.map(Ask().inner, fed.broadcast(x)))
    torch.testing.assert_close(z, x.sum()[None] / 2, rtol=0, atol=0.02)  # aᵀx, a = (½, ½, ½, ½)
    X, Z = fed.broadcast(x, x.sum()[None] / 2)
    found = fed.mean(fed.map(Ask().gradient, X, Z))
    torch.testing.assert_close(found.double(), sided.exact(x, 4, differ)[0], rtol=0, atol=0.02)


def test_replicas_do_not_touch_each_other() -> None:
    """Another starting point of one replica leaves the others' iterates as they are, bit for bit."""
    sided = module("feddro-theory", "sided")
    ends = []
    for first in (0.0, 1.0):
        fed = Federation(sided.problem(2, 3, True), Data.streams(["a", "b"]), seed=1)
        algorithm = FedDRO(0.1, 0.5, 2, 1)
        state = algorithm.init(fed, torch.tensor([first, 0, 0, 0, 0, 0]))
        for _ in range(5):
            state = algorithm.round(fed, state)
        ends.append(state.x.reshape(3, 2))
    assert torch.equal(ends[0][1:], ends[1][1:])
    assert not torch.equal(ends[0][0], ends[1][0])


def test_what_a_client_sends_is_what_was_recorded() -> None:
    """The shortest run of the law of communication: x twice a round, y 2 + 1/I times a step."""
    found = module("feddro-theory", "sided").work({"method": "FedDRO", "differ": True, "local_steps": None, "clients": 4, "steps": 256,
                                                   "d": 32, "local": 4.0, "seed": 0})
    recorded, = (row for row in json.loads((FOLDER / "feddro-theory" / "results.json").read_text())["rows"]
                 if row["setting"].items() >= {"regime": "law", "clients": 4, "steps": 258}.items())
    assert {name: found[name] for name in ("steps", "rounds", "floats")} == {"steps": 258, "rounds": 43, "floats": 3311}
    assert recorded["setting"].items() >= {"rounds": 43, "floats": 3311}.items()
    assert np.mean(found["values"]) == pytest.approx(recorded["mean"], rel=1e-4)


def test_fits_find_the_law_they_look_for() -> None:
    """Values of exactly 3/√(KT): steps to a level fall as 1/K, and what is sent follows its exponents; a law without K does not pass."""
    run = module("feddro-theory", "run")

    def made(power: float) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [({"clients": k}, {"steps": length / k, "rounds": length**0.75, "values": [3 / math.sqrt(length / k**power)] * 4})
                for k in (1, 2, 4, 8) for length in (1000, 4000, 16000)]

    times, slope, order = run.by_clients(made(0.0), 0.05, run.resampled)
    assert times == pytest.approx({k: 3600 / k for k in (1, 2, 4, 8)})
    assert (slope[0], order[0]) == pytest.approx((-1, -0.5))
    assert run.by_clients(made(1.0), 0.12, run.resampled)[1][0] == pytest.approx(0, abs=1e-9)
    done = [(t, r | {"floats of x": r["rounds"], "floats of y": r["steps"], "floats": 1.0}) for t, r in made(0.0) if t["clients"] == 2]
    assert [value for value, _ in run.exponents(done).values()] == pytest.approx([-1.5, -2, -1.5, -2, 0])


# fairness and rare classes


def test_reweighing_makes_label_and_group_independent() -> None:
    """With the agreed weights every group has the same share of positives, whatever client holds its rows."""
    census = module("fair-adult", "census")
    r = np.random.default_rng(0)
    group, labels = r.integers(2, size=60), r.integers(2, size=60)
    labels[group == 0] &= r.integers(2, size=int((group == 0).sum()))
    fields = {"inputs": torch.zeros(60, 1), "labels": torch.from_numpy(labels), "sex": torch.from_numpy(group)}
    counts = census.cells(fields, 2, "sex", torch.float64).sum(0)
    assert counts.tolist() == [[((labels == y) & (group == s)).sum() for s in (0, 1)] for y in (0, 1)]
    weighted = census.balance(counts) * counts
    torch.testing.assert_close(weighted[1] / weighted.sum(0), torch.full((2,), labels.mean(), dtype=torch.float64))
    torch.testing.assert_close(weighted.sum(), torch.tensor(60.0, dtype=torch.float64))
    model = Model(torch.nn.Linear(1, 1))
    fed = Federation(census.reweighed(model, 2, "sex"), Data.by_site(fields, np.arange(60) % 3))
    fed.prepare(torch.zeros(2))
    x = torch.tensor([0.0, 0.4])  # the loss of a label is the same in all rows
    expected = sum(float(weighted[y].sum()) / 60 * math.log1p(math.exp(-0.4 if y else 0.4)) for y in (0, 1))
    assert float(fed.problem.value(x, Batch(dict(fed.data.fields)))) == pytest.approx(expected, rel=1e-5)  # type: ignore[attr-defined]


def test_accuracies_of_classes_are_counted_apart() -> None:
    classes = module("dro-imbalanced", "classes")
    model = Model(torch.nn.Linear(10, 10, bias=False))
    labels = torch.tensor([0, 0, 0, 7, 7, 9])
    guesses = torch.tensor([0, 0, 1, 7, 0, 1])
    rows = {"inputs": torch.eye(10)[guesses], "labels": labels}
    found = classes.accuracies(model, torch.eye(10).reshape(-1), rows)
    expected = {"accuracy": 3 / 6, "balanced": (2 / 3 + 1 / 2 + 0) / 3, "rare": 1 / 4, "common": 2 / 3, "worst class": 0}
    assert found == pytest.approx(expected)
