"""What the experiments' pages say of their own results (claims.json), held against what the runs recorded (results.json)."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from experiment_files import FOLDER, module

Entry = dict[str, Any]
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/run.py"))
ROW = {"method", "setting", "metric"}
ABOUT = {"source", "says"}


def read(experiment: str, file: str) -> Any:
    return json.loads((FOLDER / experiment / file).read_text(encoding="utf-8"))


def mean(which: Entry, rows: list[Entry]) -> float:
    """Of the one row that a claim speaks of. Its setting is the row's, or the part of it that no other row has."""
    wanted = which["setting"]

    def fits(setting: Any) -> bool:
        if isinstance(wanted, dict) and isinstance(setting, dict):
            return all(name in setting and setting[name] == value for name, value in wanted.items())
        return bool(wanted == setting)

    found = [row for row in rows if (row["method"], row["metric"]) == (which["method"], which["metric"]) and fits(row["setting"])]
    if len(found) != 1:
        raise AssertionError(f"a claim speaks of exactly one row; {which} fits {len(found)}")
    if found[0]["mean"] is None:
        raise AssertionError(f"the row of {which} has no value")
    return float(found[0]["mean"])


def hold(claim: Entry, rows: list[Entry]) -> None:
    """A mean within the tolerance of a value, or one mean above another by a margin, which may be negative: not below it by more."""
    if not all(isinstance(claim.get(name), str) and claim[name] for name in ABOUT):
        raise AssertionError(f"a claim says something, and where it comes from; got {claim}")
    if set(claim) == ROW | ABOUT | {"value", "tolerance"}:
        if not claim["tolerance"] >= 0:
            raise AssertionError(f"a tolerance is not negative; got {claim}")
        found = mean(claim, rows)
        kept = abs(found - claim["value"]) <= claim["tolerance"]
    elif set(claim) == ABOUT | {"above", "below", "margin"} and set(claim["above"]) == set(claim["below"]) == ROW:
        found = mean(claim["above"], rows) - mean(claim["below"], rows)
        kept = found >= claim["margin"]
    else:
        raise AssertionError(f"a claim is (method, setting, metric, value, tolerance) or (above, below, margin); got {claim}")
    if not kept:
        raise AssertionError(f"{claim['says']!r} does not hold: the record has {found}, the claim is {claim}")


@pytest.mark.parametrize("experiment", NAMES)
def test_what_an_experiment_says_of_itself_is_what_it_recorded(experiment: str) -> None:
    rows, claims = read(experiment, "results.json")["rows"], read(experiment, "claims.json")
    assert len(claims) >= 5
    for claim in claims:
        hold(claim, rows)


@pytest.mark.parametrize("experiment", NAMES)
def test_an_experiment_has_its_page_and_a_line_in_the_list(experiment: str) -> None:
    page = (FOLDER / experiment / "README.md").read_text(encoding="utf-8")
    assert f"python experiments/{experiment}/run.py" in page
    assert f"]({experiment}/)" in (FOLDER / "README.md").read_text(encoding="utf-8")


# that the check can fail

ROWS = [{"method": method, "setting": {"K": clients, "lr": 0.1}, "metric": "loss", "mean": value}
        for method, clients, value in (("A", 1, 0.5), ("A", 2, 0.3), ("B", 1, 0.7), ("B", 2, None), ("C", 1, math.nan))]
LOSS: Entry = {"method": "A", "setting": {"K": 1}, "metric": "loss"}
GOOD: Entry = {**LOSS, "value": 0.51, "tolerance": 0.02, "source": "Theorem 1", "says": "A is at 0.51"}
ABOVE: Entry = {"above": {**LOSS, "method": "B"}, "below": LOSS, "margin": 0.1, "source": "Figure 1", "says": "B is above A"}


def test_claims_that_hold() -> None:
    for claim in (GOOD, {**GOOD, "value": 0.5, "tolerance": 0}, ABOVE, {**ABOVE, "above": LOSS, "below": LOSS, "margin": -0.01}):
        hold(claim, ROWS)
    hold({**GOOD, "setting": "K = 1"}, [{**ROWS[0], "setting": "K = 1"}])


@pytest.mark.parametrize(("changed", "message"), [
    ({**GOOD, "value": 0.53}, "does not hold: the record has 0.5"),
    ({**GOOD, "value": math.nan}, "does not hold"),
    ({**GOOD, "tolerance": -0.1}, "tolerance is not negative"),
    ({**GOOD, "method": "C"}, "does not hold"),
    ({**GOOD, "setting": {}}, "fits 2"),
    ({**GOOD, "setting": {"K": 3}}, "fits 0"),
    ({**GOOD, "setting": {"K": 1, "beta": None}}, "fits 0"),
    ({**GOOD, "setting": "K = 1"}, "fits 0"),
    ({**GOOD, "method": "B", "setting": {"K": 2}}, "has no value"),
    ({**GOOD, "source": ""}, "where it comes from"),
    ({**GOOD, "tolerence": 1}, r"a claim is \(method"),
    ({**ABOVE, "margin": 0.25}, "does not hold"),
    ({**ABOVE, "above": ABOVE["below"], "below": ABOVE["above"]}, "does not hold"),
    ({**ABOVE, "below": {**LOSS, "method": "C"}}, "does not hold"),
    ({**ABOVE, "below": {"method": "A"}}, r"a claim is \(method")])
def test_claims_that_do_not_hold_are_refused(changed: Entry, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        hold(changed, ROWS)


def test_a_wrong_number_in_an_experiments_own_claims_is_refused() -> None:
    rows = read("template", "results.json")["rows"]
    for claim in read("template", "claims.json"):
        wrong = {**claim, "value": claim["value"] * 1.1} if "value" in claim else {**claim, "margin": claim["margin"] + 1}
        with pytest.raises(AssertionError, match="does not hold"):
            hold(wrong, rows)


@pytest.mark.slow
def test_the_template_comes_out_again_and_its_claims_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = module("template", "run")
    monkeypatch.setattr(template, "HERE", tmp_path / "template")
    (tmp_path / "template").mkdir()
    monkeypatch.setattr(sys, "argv", ["run.py", "--jobs", "1", "--out", str(tmp_path)])
    template.main()
    found = json.loads((tmp_path / "template" / "results.json").read_text())
    assert found["command"] == "python experiments/template/run.py"
    assert len(found["rows"]) == len(read("template", "results.json")["rows"])
    for claim in read("template", "claims.json"):
        hold(claim, found["rows"])
