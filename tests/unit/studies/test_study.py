"""Studies: trials done once, also after an interruption; spreads and tests against SciPy; what is chosen from a grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rookery.studies import StudyError, best, groups, mean_std, paired_ttest, record, rows, study, trials

SQUARES: list[int] = []


def square(trial: dict[str, Any]) -> dict[str, Any]:
    SQUARES.append(trial["n"])
    return {"square": trial["n"] ** 2}


def breaks_at_three(trial: dict[str, Any]) -> dict[str, Any]:
    if trial["n"] == 3:
        raise ZeroDivisionError
    return square(trial)


def test_trials_are_done_once_and_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    SQUARES.clear()
    store = tmp_path / "results.jsonl"
    todo = trials(n=range(5))
    with pytest.raises(ZeroDivisionError):
        study(breaks_at_three, todo, store, jobs=1)
    assert SQUARES == [0, 1, 2]
    with store.open("a") as file:
        file.write('{"trial": {"n": 3}, "resu')  # the machine stopped in the middle of a line
    seen: list[tuple[int, int]] = []
    done = study(square, todo, store, jobs=1, on_progress=lambda a, b: seen.append((a, b)))
    assert SQUARES == [0, 1, 2, 3, 4]
    assert [result["square"] for _, result in done] == [0, 1, 4, 9, 16]
    assert seen == [(3, 5), (4, 5), (5, 5)]
    study(square, todo, store, jobs=1)
    assert len(SQUARES) == len(store.read_text().splitlines()) == 5


def test_processes_give_the_same_results_in_order(tmp_path: Path) -> None:
    done = study(square, trials(n=range(4)), tmp_path / "results.jsonl", jobs=2)
    assert done == [({"n": n}, {"square": n * n}) for n in range(4)]


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("a,b\n1,2\n")
    with pytest.raises(StudyError, match="not a file of trials"):
        study(square, [{"n": 1}], tmp_path / "results.jsonl", jobs=1)


def test_the_paired_test_is_scipys() -> None:
    r = np.random.default_rng(0)
    a, b = r.normal(0.3, 1, 8), r.normal(0, 1, 8)
    ours, theirs = paired_ttest(a.tolist(), b.tolist()), stats.ttest_rel(a, b)
    interval = theirs.confidence_interval(0.95)
    np.testing.assert_allclose(ours, [(a - b).mean(), interval.low, interval.high, theirs.pvalue], rtol=1e-12)
    assert np.isnan(paired_ttest([0.3, 0.4], [0.2, 0.3]).p)  # equal differences, which rounding must not make significant
    with pytest.raises(StudyError, match="same seeds of both"):
        paired_ttest([1.0], [2.0])


def test_spread_groups_and_rows() -> None:
    done = [({"method": m, "K": k, "seed": s}, {"AP": 0.1 * k + 0.01 * s, "other": None}) for m in "AB" for k in (1, 2) for s in range(3)]
    assert list(groups(done, "method", "K")) == [("A", 1), ("A", 2), ("B", 1), ("B", 2)]
    table = rows(done, ["AP", "other"], setting=["K"], paper={("A", 2, "AP"): 0.3})
    assert [row["paper"] for row in table] == [None, 0.3, None, None]
    assert table[1]["setting"] == {"K": 2}
    np.testing.assert_allclose([table[1]["mean"], table[1]["std"]], [0.21, 0.01])
    assert mean_std([2.0]) == (2.0, 0.0, 1)


def test_the_best_of_a_grid_is_by_the_mean_over_seeds_and_never_one_that_diverged() -> None:
    scores = {0.1: [0.5, 0.6], 0.3: [0.9, 0.3], 1.0: [None, 0.99]}
    done = [({"method": "A", "lr": lr, "seed": s}, {"AP": values[s]}) for lr, values in scores.items() for s in range(2)]
    assert best(done, ["method"], "AP") == {("A",): {"method": "A", "lr": 0.3}}
    assert best(done[:4], ["method"], "AP", larger=False) == {("A",): {"method": "A", "lr": 0.1}}


def test_a_record_has_what_is_needed_to_repeat_it(tmp_path: Path) -> None:
    record(tmp_path / "results.json", [{"method": "A", "mean": 1.0}], minutes=1.26, command="python run.py")
    told = json.loads((tmp_path / "results.json").read_text())
    assert told["rows"] == [{"method": "A", "mean": 1.0}]
    assert (told["command"], told["minutes"]) == ("python run.py", 1.3)
    assert {"commit", "date", "machine"} <= told.keys()
