"""A fit over real sites gives the bundle that a simulation gives, and says what it is worth from sums."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hospitals
import numpy as np
import pytest
import torch

from rookery import Data, Federation
from rookery.errors import ConfigError, Refused
from rookery.fitting import Options, fit
from rookery.fitting.options import Ready
from rookery.metrics.resampling import BINS, poisson, resampled
from rookery.objectives import cross_entropy
from rookery.problems import Model
from rookery.studies.job import number_tested

MAY = {"algorithms": ("FedAvg", "CODA+", "LocalSCGDAM", "LocalSGDAM", "FCSG-M", "Acc-FCSG-M", "FedDRO"),
       "objectives": ("cross_entropy", "balanced_cross_entropy", "auc", "ap_surrogate", "last_layer", "partial_auc", "kl_dro", "cvar_dro")}
QUICK = Options(rounds=2, local_steps=2, batch=16, jobs=1, pool=False)


def bundles(folder: Path, goal: str, **sections: Any) -> tuple[Path, Path]:
    """Those of a fit at the hospitals, and of one over their rows in one table."""
    tree = {name: table for name, table in hospitals.description(folder, **sections).items() if name not in ("algorithm", "run")}
    hosts = {name: hospitals.host(folder, name, hospitals.rules(**MAY)) for name in hospitals.NAMES}
    known: list[list[int]] = []

    def ready(start: Ready) -> None:
        held = start.rows.data.split("validation")
        assert held is not None
        known.append([*start.rows.data.sizes.tolist(), *held.sizes.tolist(), number_tested(start.rows.data, start.rows.test)])

    real = fit(tree, goal, folder / f"{goal} at sites", QUICK, None, ready, hospitals.reached(folder, f"fit {goal}", **hosts))
    simulated = fit(hospitals.simulated(folder, tree), goal, folder / f"{goal} in one place", QUICK, None, ready)
    assert known[0] == known[1]
    assert real.told["kept"] == simulated.told["kept"]
    for one, other in zip(real.told["rows"], simulated.told["rows"], strict=False):
        assert one["label"] == other["label"]
        assert one["setting"] == other["setting"]
        assert one["validation"] == pytest.approx(other["validation"], abs=1e-5)
        assert one["test"][0] == pytest.approx(other["test"][0], abs=2e-3)
        assert one["test"][1:] == pytest.approx(other["test"][1:], abs=0.05)  # other draws of the same rows
    return real.bundle, simulated.bundle


def test_the_bundle_of_a_simulation(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    real, simulated = bundles(tmp_path, "auc")
    for file in ("model.safetensors", "encoder.json"):
        assert (real / file).read_bytes() == (simulated / file).read_bytes()
    one, other = (json.loads((folder / "bundle.json").read_text()) for folder in (real, simulated))
    assert one["threshold"] == pytest.approx(other["threshold"], rel=1e-5)
    assert one["found"]["confusion"] == other["found"]["confusion"]


@pytest.mark.slow
def test_a_fit_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    tree = {name: table for name, table in hospitals.description(tmp_path).items() if name not in ("algorithm", "run")}
    hosts = {name: hospitals.host(tmp_path, name, hospitals.rules(**MAY)) for name in hospitals.NAMES}
    reached = hospitals.reached(tmp_path, "cut off", **hosts)

    def cut(what: str, done: float, number: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tree, "accuracy", tmp_path / "fit", replace(QUICK, jobs=None), tell=cut, reached=reached)
    made = (tmp_path / "fit/trials.jsonl").read_text().splitlines()
    done = fit(tree, "accuracy", tmp_path / "fit", replace(QUICK, jobs=2), reached=reached)
    assert (tmp_path / "fit/trials.jsonl").read_text().splitlines()[: len(made)] == made
    assert (done.bundle / "model.safetensors").exists()


def test_goals_that_need_rows(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    with pytest.raises(ConfigError, match="a fit over real sites has the goals accuracy, auc, ap, partial_auc"):
        fit({"data": {"schema": str(tmp_path / "schema.toml")}}, "worst_site", tmp_path / "fit", QUICK, reached=hospitals.reached(tmp_path))


def test_sites_are_asked_for_everything_before_anything_is_trained(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    tree = {name: table for name, table in hospitals.description(tmp_path).items() if name not in ("algorithm", "run")}
    with pytest.raises(Refused) as error:
        fit(tree, "auc", tmp_path / "fit", QUICK, reached=hospitals.reached(tmp_path))
    assert "A fit for auc needs, under [may] at every site, algorithms = [\"FedAvg\"" in str(error.value)
    assert "objectives = [\"auc\", \"balanced_cross_entropy\", \"cross_entropy\"" in str(error.value)
    assert not (tmp_path / "fit/trials.jsonl").exists()


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_drawn_anew_where_they_are(classes: int) -> None:
    r = np.random.default_rng(0)
    parts = {name: {"inputs": r.normal(size=(rows, 3)).astype(np.float32), "labels": r.integers(0, classes, rows)}
             for name, rows in (("a", 40), ("b", 25))}
    data = Data.from_parts(parts)
    fed = Federation(cross_entropy(Model(torch.nn.Linear(3, classes))), data.with_splits(test=data), engine="loop")
    x = torch.from_numpy(r.normal(size=4 * classes).astype(np.float32))
    sums = resampled(fed, x, "test", classes, 50, seed=1)
    assert sums.shape == ((50, 2, BINS) if classes == 2 else (50, 2))
    weights = [poisson(np.arange(len(part["labels"])) + (k << 32), 50, 1) for k, part in enumerate(parts.values())]
    assert sums.flatten(1).sum(1).tolist() == sum(own.sum(0) for own in weights).tolist()
    if classes == 2:
        labels = np.concatenate([part["labels"] for part in parts.values()])
        assert sums[:, 1].sum(1).tolist() == (np.concatenate(weights) * labels[:, None]).sum(0).tolist()
    else:
        logits = [part["inputs"] @ x[: 3 * classes].reshape(classes, 3).numpy().T + x[3 * classes :].numpy() for part in parts.values()]
        right = np.concatenate([own.argmax(1) == part["labels"] for own, part in zip(logits, parts.values(), strict=True)])
        assert sums[:, 1].tolist() == (np.concatenate(weights) * right[:, None]).sum(0).tolist()


def test_rows_of_a_group_are_drawn_together() -> None:
    data = Data.from_parts({name: {"inputs": np.zeros((4, 2), dtype=np.float32), "labels": np.zeros(4, dtype=np.int64),
                                   "group": np.full(4, 7)} for name in ("a", "b")})
    fed = Federation(cross_entropy(Model(torch.nn.Linear(2, 2))), data.with_splits(test=data), engine="loop")
    rows = resampled(fed, torch.zeros(6), "test", 2, 100).flatten(1).sum(1)
    assert set((rows % 8).tolist()) == {0.0}
    assert len(set(rows.tolist())) > 2
