"""Laws of running and comparing that a review found broken once."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from running import GOOD, changed, command, toml

from rookery import SCAFFOLD, Data, Federation, FedOpt
from rookery.data import hold_out
from rookery.errors import CheckpointError, ConfigError, NonFinite
from rookery.problems import testproblems as known
from rookery.studies.build import build
from rookery.studies.compare import compare
from rookery.studies.description import parse
from rookery.training import run

K = known.minimization()


def csv(path: Path, rows: int = 120, seed: int = 0) -> Path:
    r = np.random.default_rng(seed)
    lines = [f"{r.normal():.3f},{c},p{i // 3}" for i, c in enumerate(r.integers(1, 4, rows))]
    path.write_text("\n".join(["age,kind,patient", *lines]))
    return path


def own(path: Path, **data: Any) -> dict[str, dict[str, Any]]:
    return changed(data={"name": ..., "csv": str(path), "label": "kind", **data}, run={"rounds": 2, "every": 1})


def test_a_class_called_by_a_number_is_the_one_of_that_name(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    counts = [sum(f",{c}," in line for line in path.read_text().splitlines()) for c in (1, 2, 3)]
    for c in (1, 2, 3):
        job = build(parse(own(path, positive=[c])))
        parts = (job.fed.data.fields["labels"], job.held.fields["labels"], job.test.fields["labels"])
        assert sum(int(part.sum()) for part in parts) == counts[c - 1]


def test_test_rows_do_not_depend_on_the_seed(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    parts = [build(parse({**own(path), "federation": {"seed": seed}})).test.fields["inputs"] for seed in (0, 7, 10**6)]
    assert torch.equal(parts[0], parts[1])
    assert torch.equal(parts[0], parts[2])
    other = build(parse(own(path, split_seed=1))).test.fields["inputs"]
    assert not torch.equal(parts[0], other)


def test_nobody_has_rows_both_in_training_and_in_validation(tmp_path: Path) -> None:
    job = build(parse(own(csv(tmp_path / "t.csv"), group="patient")))
    for name in job.held.names:
        parts = [data.views(data.names.index(name))["group"].tolist() for data in (job.fed.data, job.held)]
        assert not set(parts[0]) & set(parts[1])
    data = Data.from_parts({"a": {"group": torch.arange(40) // 4}, "b": {"group": torch.zeros(4, dtype=torch.long)}})
    train, held = hold_out(data, 0.25, 3, "group")
    assert (train.sizes.tolist(), held.names, held.sizes.tolist()) == ([32, 4], ("a",), [8])


def test_a_comparison_that_goes_back_to_an_earlier_description_shows_that_one(tmp_path: Path) -> None:
    first, second = (changed(run={"rounds": 2, "every": 1}, algorithm={"lr": lr}) for lr in (0.5, 0.01))
    a = compare({"m": first}, 1, tmp_path, jobs=1)
    compare({"m": second}, 1, tmp_path, jobs=1)
    assert compare({"m": first}, 1, tmp_path, jobs=1) == a
    last = json.loads((tmp_path / "m" / "seed-0" / "history.jsonl").read_text().splitlines()[-1])
    assert last["test loss"] == a[0].spreads["test loss"].mean
    shutil.rmtree(tmp_path / "m")
    assert compare({"m": first}, 1, tmp_path, jobs=1) == a
    assert (tmp_path / "m" / "seed-0" / "about.json").exists()


def test_a_changed_data_file_is_another_trial(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    first = compare({"m": own(path)}, 1, tmp_path / "out", jobs=1)
    csv(path, seed=1)
    assert compare({"m": own(path)}, 1, tmp_path / "out", jobs=1) != first


def test_one_more_seed_does_not_tune_again(tmp_path: Path) -> None:
    tree, grid = changed(run={"rounds": 1}), {"algorithm.lr": [0.1, 0.5]}
    compare({"m": tree}, 1, tmp_path, grid, jobs=1)
    before = (tmp_path / "m" / "seed-0" / "about.json").stat().st_mtime_ns
    compare({"m": tree}, 2, tmp_path, grid, jobs=1)
    assert (tmp_path / "m" / "seed-0" / "about.json").stat().st_mtime_ns == before
    assert len((tmp_path / "tuning.jsonl").read_text().splitlines()) == 2


def test_the_tuning_that_is_told_is_the_mean_that_chose(tmp_path: Path) -> None:
    compare({"m": changed(run={"rounds": 1})}, 1, tmp_path, {"algorithm.lr": [0.1, 0.5]}, tuning_seeds=2, jobs=1)
    tried = json.loads((tmp_path / "m" / "seed-0" / "about.json").read_text())["tuning"]["tried"]
    rows = [json.loads(line) for line in (tmp_path / "tuning.jsonl").read_text().splitlines()]
    for one in tried:
        own = [row["result"]["validation loss"] for row in rows if dict(row["trial"]["values"]) == one["values"]]
        assert len(own) == 2
        assert one["score"] == pytest.approx(np.mean(own))
    assert len(tried) == 2


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m" / "seed-0").mkdir(parents=True)
    (tmp_path / "m" / "seed-0" / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="holds something else than a run"):
        compare({"m": changed(run={"rounds": 1})}, 1, tmp_path, jobs=1)
    assert (tmp_path / "m" / "seed-0" / "thesis.tex").exists()


def test_a_warm_up_that_diverges_is_the_worst_of_a_grid(tmp_path: Path) -> None:
    tree = changed(run={"rounds": 12}, warm_up={"rounds": 10})
    entries = compare({"m": tree}, 1, tmp_path, {"warm_up.lr": [1e38, 0.1]}, jobs=1)
    assert entries[0].chosen == {"warm_up.lr": 0.1}
    error = pickle.loads(pickle.dumps(NonFinite("north", "is not finite")))
    assert (type(error), error.client, str(error)) == (NonFinite, "north", "client 'north': is not finite")


def test_a_warm_up_draws_other_rows_and_its_seconds_count(tmp_path: Path) -> None:
    job = build(parse(changed(warm_up={"rounds": 2}, federation={"clients_per_round": 2})))
    result = job.run(tmp_path / "run", "x")
    assert [row["round"] for row in result.history] == [0, 2, 4]
    assert 0 == result.history[0]["seconds"] < result.history[1]["seconds"]
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["rounds"] == GOOD["run"]["rounds"] == about["ledger"]["train"]["exchanges"]


def test_seconds_are_of_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only evaluations move."""
    clock = [0.0]
    monkeypatch.setattr("rookery.training.loop.time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def evaluate(state: Any) -> dict[str, float]:
        clock[0] += 10
        return {"x": 0.0}

    fed, algorithm = Federation(K.problem, K.data, engine="loop"), SCAFFOLD(0.1, 2)
    result = run(algorithm, fed, algorithm.init(fed, K.x0), 4, evaluate, every=1)
    assert len(result.history) == 5
    assert (result.seconds, clock[0]) == (0, 50)


@pytest.mark.parametrize("algorithm", [SCAFFOLD(0.1, 4, 2), FedOpt(0.1, 4, 2, "adam", server_lr=1.0)], ids=lambda a: a.title)
def test_where_x_is_no_mean_of_points_the_uniform_iterate_is_a_rounds(algorithm: Any) -> None:
    for seed in range(4):
        fed = Federation(K.problem, K.data, seed=seed)
        result = run(algorithm, fed, algorithm.init(fed, K.x0), 5, output="uniform")
        again = Federation(K.problem, K.data, seed=seed)
        state, seen = algorithm.init(again, K.x0), [K.x0]
        for _ in range(5):
            state = algorithm.round(again, state)
            seen.append(state.x)
        assert result.output is not None
        assert any(torch.equal(result.output, x) for x in seen[1:])
        assert torch.equal(result.state.x, state.x)
        assert fed.ledger["output"].exchanges == 0


def test_the_uniform_iterate_is_what_is_scored_and_predicted(tmp_path: Path) -> None:
    tree = changed(run={"rounds": 6, "every": 6, "output": "uniform"}, federation={"seed": 1})
    job = build(parse(tree))
    result = job.run(tmp_path / "run", "x")
    assert result.output is not None
    saved = np.load(tmp_path / "run" / "predictions.npz")
    accuracy = float((saved["scores"].argmax(1) == saved["labels"]).mean())
    assert result.history[-1]["test accuracy"] == pytest.approx(accuracy)
    assert json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1]) == result.history[-1]
    assert json.loads((tmp_path / "run" / "about.json").read_text())["iterate"] == "uniform"
    with pytest.raises(CheckpointError, match="drawn from 6 rounds, and they cannot become 9"):
        build(parse({**tree, "run": {**tree["run"], "rounds": 9}})).run(tmp_path / "run", "x", resume=True)


def test_a_run_goes_on_only_as_it_was_described(tmp_path: Path) -> None:
    tree = changed(objective={"name": "kl_dro", "lam": 2.0}, algorithm={"name": "FedDRO"})
    build(parse(tree)).run(tmp_path, "x")
    traffic = json.loads((tmp_path / "about.json").read_text())["traffic"]
    with pytest.raises(CheckpointError, match="another description"):
        build(parse(changed(objective={"name": "kl_dro", "lam": 9.0}, algorithm={"name": "FedDRO"}))).run(tmp_path, "x", resume=True)
    build(parse(tree)).run(tmp_path, "x", resume=True)
    assert json.loads((tmp_path / "about.json").read_text())["traffic"] == traffic != []
    longer = build(parse({**tree, "run": {"rounds": 6}})).run(tmp_path, "x", resume=True)
    assert longer.rounds == 6


def test_minutes_are_those_of_a_call(tmp_path: Path) -> None:
    fed, algorithm = Federation(K.problem, K.data, engine="loop"), SCAFFOLD(0.1, 2)
    first = run(algorithm, fed, algorithm.init(fed, K.x0), 10**6, minutes=0.005, folder=tmp_path)
    fed = Federation(K.problem, K.data, engine="loop")
    second = run(algorithm, fed, algorithm.init(fed, K.x0), 10**6, minutes=0.005, folder=tmp_path, resume=True)
    assert (first.reason, second.reason) == ("minutes", "minutes")
    assert second.rounds > first.rounds > 0


def test_a_run_on_the_wire_keeps_its_sites_state_in_its_folder(tmp_path: Path) -> None:
    tree = changed(federation={"engine": "wire"}, algorithm={"name": "SCAFFOLD"})
    build(parse(tree), tmp_path).run(tmp_path, "x")
    assert list((tmp_path / "sites").iterdir())


@pytest.mark.parametrize(("arguments", "words"), [
    (["run", "."], "cannot be read"), (["run", "good.toml", "--out", "good.toml"], "good.toml"),
    (["report", "good.toml"], "good.toml"), (["compare", "good.toml", "--grid", "algorithm.lr="], "values to choose from"),
    (["compare", "good.toml", "--grid", "federation.seed=1,2"], "seeds are not chosen"),
    (["compare", "good.toml", "--tuning-seeds", "0"], "at least one tuning seed"),
    (["compare", "good.toml", "--grid", "algorithm.mu=0.1"], "good: .*no entry 'mu'"),
    (["run", "good.toml", "--set", "model.hidden=[-3]"], "at least one unit"), (["run", "good.toml", "--set", "run.rounds=-1"], "negative"),
    (["run", "good.toml", "--set", "federation.min_batch=0"], "min_batch must be at least 1"),
    (["run", "good.toml", "--set", "federation.weights=positives"], "needs two classes"),
    (["run", "good.toml", "--set", "data.long_tail=0.1", "--set", "data.minority=[1]", "--set", "data.minority_keep=0.1"],
     "keep one of them"),
    (["run", "flat.toml", "--set", "run.rounds=3"], r"\[run\] is a section of its own"), (["run", "one.toml"], "two classes at least"),
    (["run", "many.toml"], "different values")], ids=lambda v: " ".join(v[:4]) if isinstance(v, list) else None)
def test_more_mistakes_are_answered_by_a_sentence(arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.toml").write_text(toml(GOOD))
    Path("flat.toml").write_text("run = 3\n" + toml({k: v for k, v in GOOD.items() if k != "run"}))
    Path("one.csv").write_text("a,kind\n" + "\n".join(f"{i},same" for i in range(30)))
    Path("many.csv").write_text("a,kind\n" + "\n".join(f"{i},{i / 7:.3f}" for i in range(90)))
    for name in ("one", "many"):
        Path(f"{name}.toml").write_text(toml(changed(data={"name": ..., "csv": f"{name}.csv", "label": "kind"})))
    assert command(monkeypatch, *arguments) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert len(told.splitlines()) <= 2
    assert re.search(words, told.replace("\n", " ")), told
