"""What an owner allows, and how much of it: limits are reached exactly, never passed, and kept when the process begins anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hosts import ALL, RUN, Probe, answer, error, frame, host, step, welcome

from rookery import FedAvg, FedDRO
from rookery.errors import ConfigError
from rookery.metrics.calibration import Calibrator
from rookery.metrics.subgroups import GroupSums
from rookery.sites import Rules
from rookery.studies.agreement import Agreement


def refusal(folder: Path, rules: Rules, *ops: dict[str, Any], **changes: Any) -> tuple[str, str]:
    welcome(at := host(folder, rules))
    found = error(at, frame(1, *ops, **changes))
    assert at.runs[RUN].site.counter == 0
    return found


def test_functions_are_allowed_by_their_algorithm_or_one_by_one() -> None:
    def allowed(*algorithms: str, others: tuple[str, ...] = ()) -> list[bool]:
        rules = Rules(algorithms, others=others)
        return [rules.allows(fn) for fn in (FedDRO(0.1, 0.5).track, FedDRO(0.1, 0.5).descend, FedAvg(0.1).step, Agreement().names)]

    assert allowed() == [False, False, False, False]
    assert allowed("FedDRO") == [True, True, False, False]
    assert allowed("FedDRO.track") == [True, False, False, False]
    assert allowed("FedDRO.tr", "feddro", "Fed", "step", "FedDRO.") == [False, False, False, False]
    assert allowed("FedAvg.step", "FedDRO.descend") == [False, True, True, False]
    assert allowed(others=("set-up",)) == [False, False, False, True]
    assert allowed(others=("evaluation",)) == [False, False, False, False]


def test_what_is_not_allowed_does_not_run(tmp_path: Path) -> None:
    assert refusal(tmp_path / "1", replace(ALL, algorithms=()), step()) == ("Refused", "Probe.same is not among what may run here")
    part = replace(ALL, algorithms=("Probe.same",))
    assert refusal(tmp_path / "2", part, step("same"), step("drawn", out=3)) == ("Refused", "Probe.drawn is not among what may run here")
    names = step("names", program=Agreement())
    assert refusal(tmp_path / "3", replace(ALL, others=("evaluation",)), names) == (
        "Refused", "Agreement.names is not among what may run here")


@pytest.mark.parametrize("method", ["_own", "__init__", "__class__", "nothing", "batch", "init", "round", ""])
def test_what_is_no_client_function_does_not_run(tmp_path: Path, method: str) -> None:
    assert refusal(tmp_path, ALL, step(method)) == ("FrameError", f"Probe has no client function {method!r}")


@pytest.mark.parametrize("program", [Agreement(4), GroupSums("test", "u", 2, 0.0, Calibrator(), 4), Probe(least=4)])
def test_a_server_cannot_lower_how_many_rows_a_name_or_a_group_needs(tmp_path: Path, program: Any) -> None:
    asked = step({Agreement: "names", GroupSums: "total", Probe: "same"}[type(program)], program=program)
    asked["arguments"] *= 2 if type(program) is GroupSums else 1
    name, message = refusal(tmp_path, replace(ALL, min_batch=5), asked)
    assert name == "Refused"
    assert message.endswith("with least=4 tells of fewer than the min_batch=5 different rows that anything here is computed from")


def test_frames_end_at_their_limit(tmp_path: Path) -> None:
    rules = replace(ALL, frames=2)
    welcome(at := host(tmp_path, rules))
    answer(at, frame(1, step()))
    assert error(at, frame(1))[0] == "FrameError"  # what is refused does not count
    second = frame(2, step(), base=1, want=[2])
    assert at.answer(second) == at.answer(second)  # a reply that was lost can be asked for, whatever the limit
    for each in (at, host(tmp_path, rules)):
        assert error(each, frame(3)) == ("Refused", "a run may have 2 frames here, and this one has had them")
    welcome(at, "another")
    answer(at, frame(1, run="another"))


def test_steps_end_at_their_limit_and_those_of_every_client_count(tmp_path: Path) -> None:
    rules = replace(ALL, steps=10)
    welcome(at := host(tmp_path, rules))
    answer(at, frame(1, step(times=[3, 1])))
    sentence = "a run may take 10 steps here; this one has taken 4, and asks for 7 more"
    assert error(at, frame(2, step(times=[1, 6]))) == ("Refused", sentence)
    at = host(tmp_path, rules)
    assert error(at, frame(3, step(times=[0, 7])))[1] == sentence
    answer(at, frame(4, step(times=3)))  # at two clients
    assert error(at, frame(5, step(times=2**62)))[0] == "Refused"
    sentence = "a run may take 10 steps here; this one has taken 10, and asks for 1 more"
    assert error(host(tmp_path, rules), frame(5, step(), clients=[0]))[1] == sentence
    answer(at, frame(6, step(times=0)))


def test_bytes_that_come_and_go_end_at_their_limit(tmp_path: Path) -> None:
    """Also those that are to leave: what would pass the limit stays."""
    rules, large = replace(ALL, megabytes=1.0), 60_000  # numbers, 0.46 MB
    welcome(at := host(tmp_path, rules))
    answer(at, frame(1, step(), step(out=3), size=large, clients=[0]))
    sentence = ("Refused", "a run may bring and take 1 MB here, and this one has, or would")
    assert error(host(tmp_path, rules), frame(2, step(), size=large, want=[2], clients=[0])) == sentence
    assert error(at, frame(2, base=1, want=[2, 3], clients=[0])) == sentence
    answer(at, frame(3, base=1, want=[2], clients=[0]))
    assert error(host(tmp_path, rules), frame(4, size=large)) == sentence


def test_replies_that_are_asked_for_again_and_again_count(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, replace(ALL, megabytes=1.0)))
    asked = frame(1, step(), want=[2], size=20_000, clients=[0])
    for _ in range(8):
        at.answer(asked)
    assert error(at, frame(2))[0] == "Refused"


def test_a_frame_ends_at_its_limit(tmp_path: Path) -> None:
    asked = frame(1, step(), size=1000)
    for size, fits in ((len(asked), True), (len(asked) - 1, False)):
        welcome(at := host(tmp_path / str(size), replace(ALL, frame_megabytes=size / 2**20)))
        if fits:
            answer(at, asked)
        else:
            assert error(at, asked)[0] == "Refused"


@pytest.mark.parametrize("wrong", [{"frames": 0}, {"steps": -1}, {"megabytes": float("nan")}, {"min_batch": 0}, {"runs": 0},
                                   {"salt": "mine"}, {"others": ("training",)}])
def test_rules_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^{next(iter(wrong))} .*; got "):
        replace(ALL, **wrong)
