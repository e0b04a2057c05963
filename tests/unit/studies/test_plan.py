"""What a comparison is said to take is what its runs then send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import changed

from rookery.errors import ConfigError
from rookery.studies.compare import compare
from rookery.studies.plan import plan

LOOP = {"engine": "loop"}
PLAIN = changed(run={"rounds": 2, "every": 2}, federation=LOOP)
DRO = changed(run={"rounds": 3, "every": 3}, federation=LOOP, objective={"name": "kl_dro"}, algorithm={"name": "FedDRO"})


def test_runs_of_all_seeds_and_of_the_grid_send_what_was_planned(tmp_path: Path) -> None:
    both, grid = {"plain": PLAIN, "dro": DRO}, {"algorithm.lr": [0.1, 0.2]}
    found = plan(both, 2, grid, tuning_seeds=1, jobs=1)
    compare(both, 2, tmp_path, grid, jobs=1)
    about = [json.loads(file.read_text())["ledger"]["train"] for file in sorted(tmp_path.glob("*/seed-*/about.json"))]
    rows = [json.loads(line)["result"] for line in (tmp_path / "tuning.jsonl").read_text().splitlines()]
    assert (found.runs, found.processes, found.how) == (len(about) + len(rows), 1, "")
    assert found.exchanges == sum(one["exchanges"] for one in about) + sum(row["exchanges"] for row in rows)
    assert found.bytes == sum(one["bytes_up"] + one["bytes_down"] for one in about) + sum(row["bytes"] for row in rows)
    assert found.seconds is not None


def test_where_the_grid_decides_what_is_sent_it_is_at_most_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.studies.plan.seconds", lambda job: 100.0)
    monkeypatch.setattr("rookery.studies.plan.time.perf_counter", lambda: 0.0)
    found = plan({"plain": PLAIN}, 3, {"run.rounds": [2, 4]}, tuning_seeds=2, jobs=2)
    assert (found.runs, found.how, found.exchanges) == (7, "at most ", 2 * (2 + 4) + 3 * 4)
    assert found.seconds == 7 * 100 / 2


@pytest.mark.parametrize(("rates", "known"), [([0.1, 1e38], True), ([1e38, 1e38], False)])
def test_values_at_which_a_run_diverges_have_no_time_of_their_own(rates: list[float], known: bool) -> None:
    assert (plan({"plain": PLAIN}, 1, {"algorithm.lr": rates}, jobs=1).seconds is not None) == known


def test_seeds_begin_where_they_are_told(tmp_path: Path) -> None:
    options: dict[str, Any] = {"jobs": 1, "first": 7}
    compare({"plain": PLAIN}, 2, tmp_path, **options)
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == ["seed-7", "seed-8"]
    assert json.loads((tmp_path / "plain" / "seed-8" / "about.json").read_text())["seed"] == 8
    with pytest.raises(ConfigError, match="the first seed lies between 0 and 999999"):
        compare({"plain": PLAIN}, 1, tmp_path, jobs=1, first=10**6)
