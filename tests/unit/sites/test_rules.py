"""What an owner allows, and how much of it: limits are reached exactly, never passed, and kept when the process begins anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hosts import ALL, RUN, Probe, answer, error, frame, host, step, welcome
from safetensors.torch import load_file, save_file

from rookery import FedAvg, FedDRO
from rookery.engines.version import Maker
from rookery.errors import ConfigError
from rookery.federation.program import PROGRAMS
from rookery.metrics.calibration import Calibrator
from rookery.metrics.subgroups import GroupSums
from rookery.sites import Host, Rules
from rookery.sites.audit import Audit
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
    assert refusal(tmp_path / "1", replace(ALL, algorithms=()), step()) == (
        "Refused", "Probe.same is not among what may run here (may.algorithms)")
    part = replace(ALL, algorithms=("Probe.same",))
    assert refusal(tmp_path / "2", part, step("same"), step("drawn", out=3)) == (
        "Refused", "Probe.drawn is not among what may run here (may.algorithms)")
    names = step("names", program=Agreement())
    assert refusal(tmp_path / "3", replace(ALL, others=("evaluation",)), names) == (
        "Refused", 'Agreement.names is not among what may run here (may.others, "set-up")')


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


# what may leave


def made(at: Host, *ops: dict[str, Any], k: int = 1, want: Sequence[int] = (), **changes: Any) -> tuple[str, str]:
    return error(at, frame(k, *ops, want=want, **changes))


def test_results_that_are_not_among_the_values_do_not_leave_and_the_others_do(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, replace(ALL, values=("Probe.same", "Probe.pair[1]"))))
    refused = "Refused", "result 0 of Probe.drawn is not among the values that may leave here (may.values)"
    assert made(at, step(), step("drawn", out=3), want=[2, 3]) == refused
    assert made(at, step(), step("drawn", out=3), want=[3], clients=[1]) == refused
    pair = {**step("pair"), "out": [4, 5]}
    assert made(at, pair, want=[4]) == ("Refused", "result 0 of Probe.pair is not among the values that may leave here (may.values)")
    assert at.runs[RUN].site.counter == 0
    answer(at, frame(1, step(), step("drawn", out=3), pair, want=[2, 5]))
    entries = list(Audit(at.place(RUN) / "log.jsonl").entries())
    assert [entry.refused for entry in entries].count(f"Refused: {refused[1]}") == 2
    assert entries[-1].numbers == 4
    answer(at, frame(2, base=1, want=[1]))  # what the server sent itself


def test_a_value_is_its_maker_s_under_another_number_and_after_a_checkpoint_too(tmp_path: Path) -> None:
    rules = replace(ALL, values=("Probe.same",))
    welcome(at := host(tmp_path, rules))
    take = {"op": "take", "source": 3, "default": 1, "holders": [0], "out": 6}
    put = {"op": "put", "pool": 7, "source": 3}
    over = {"op": "put", "pool": 2, "source": 3}  # in the place of one that may leave
    save = {"op": "save", "tag": "tag", "ids": [2, 3, 6, 7]}
    answer(at, frame(1, step(), step("drawn", out=3), take, put))
    answer(at, frame(2, save, base=1))
    assert [made(at, over, k=3, base=2, want=[2])[0], *(made(at, k=3, base=2, want=[id])[0] for id in (3, 6, 7))] == ["Refused"] * 4
    answer(at, frame(3, base=2, want=[6], clients=[1]))  # the default there, which is the server's
    for each in (at, again := host(tmp_path, rules)):
        if each is again:
            welcome(again)
        load = {"op": "load", "tag": "tag", "ids": [[2, 12], [3, 13], [6, 16], [7, 17]]}
        k = 4 if each is at else 5
        answer(each, frame(k, load))
        assert [made(each, k=k + 1, base=k, want=[id])[0] for id in (13, 16, 17)] == ["Refused"] * 3
        if each is again:
            answer(each, frame(k + 1, base=k, want=[12]))
            answer(each, frame(k + 2, base=k, want=[16], clients=[1]))


def test_a_checkpoint_without_makers_is_loaded_and_does_not_leave(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, replace(ALL, values=("Probe.same",))))
    answer(at, frame(1, step(), {"op": "put", "pool": 3, "source": 2}))
    answer(at, frame(2, {"op": "save", "tag": "tag", "ids": [2]}, base=1))
    [file] = at.place(RUN).glob("*-tag.safetensors")
    save_file(load_file(file), file)
    answer(at, frame(3, {"op": "load", "tag": "tag", "ids": [[2, 2]]}, base=2))
    assert made(at, k=4, base=3, want=[2]) == ("Refused", "a value of which nobody knows what made it is not among the values that may "
                                                          "leave here (may.values)")


def test_scores_and_what_is_agreed_may_leave_where_their_groups_may_run() -> None:
    rules = Rules(("FedAvg",), values=())
    scores, agreed = ("rookery.metrics.federated.Sums", "rookery.studies.agreement.Agreement")
    assert [rules.sends(Maker(full, "total", 0)) for full in (scores, agreed, "rookery.algorithms.minimization.fedavg.FedAvg")] == [
        full in PROGRAMS for full in (scores, agreed)] + [False]
    assert not replace(rules, others=()).sends(Maker(agreed, "totals", 0))
    assert Rules(("FedAvg",)).sends(Maker("rookery.algorithms.minimization.fedavg.FedAvg", "step", 0))


@pytest.mark.parametrize("entry", ["FedAvg", "FedAvg.stp", "FedAvg.step[x]", "FedAvg.step[0", "step", "NoSuch.step[1]"])
def test_values_that_nothing_makes_are_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{entry!r} is neither")):
        Rules(("FedAvg",), values=("FedAvg.step", entry)).check()
    Rules(("FedAvg",), values=("FedAvg.step", "SOAP.descend[0]")).check()


def test_a_function_that_runs_no_times_gives_its_arguments_no_other_maker(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, replace(ALL, values=("Probe.same",))))
    relabel = {**step("same", out=4, times=0), "arguments": [{"ref": 3}]}
    refused = "Refused", "result 0 of Probe.drawn is not among the values that may leave here (may.values)"
    assert made(at, step("drawn", out=3), relabel, want=[4]) == refused
    assert made(at, step("drawn", out=3), {**relabel, "times": [0, 1]}, want=[4]) == refused
    answer(at, frame(1, step("drawn", out=3), {**relabel, "times": 1}, want=[4]))  # which has run
    answer(at, frame(2, step("drawn", out=5, times=0), base=1, want=[5]))  # what the server sent itself


def test_a_model_that_was_adapted_does_not_leave_unless_it_is_named(tmp_path: Path) -> None:
    adapted = Maker("rookery.metrics.personal.Adaptation", "step", 0)
    assert adapted.program in PROGRAMS
    assert not Rules(("FedAvg",)).sends(adapted)
    assert not Rules(("FedAvg",), values=("FedAvg.step",)).sends(adapted)
    assert Rules(("FedAvg",), values=("Adaptation.step",)).sends(adapted)


def test_a_function_that_runs_no_times_has_no_numbers_as_results(tmp_path: Path) -> None:
    welcome(at := host(tmp_path))
    number = {**step("same", times=[0, 1]), "arguments": [{"value": 3.0}]}
    assert made(at, number) == ("FrameError", "Probe.same runs no times at some client, and only values have results then; the frame has "
                                              "numbers")
