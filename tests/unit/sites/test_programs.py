"""Programs are named, and run only where they are the same as at the server: they, their bases, and those that they are made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import Probe, answer, error, frame, host, step, welcome

from rookery import Program
from rookery.engines import programs
from rookery.engines.programs import built, describe


@dataclass(frozen=True)
class Unlike(Program):
    """Another one at the server."""


def test_a_program_of_another_source_is_refused(tmp_path: Path) -> None:
    at = host(tmp_path)
    welcome(at)
    full = f"{Probe.__module__}.Probe"
    refusal = f"program {full!r} is another one here than at the server: install the same version at both"
    assert error(at, frame(1, step(), programs={full: "0" * 16})) == ("FrameError", refusal)
    assert error(at, frame(1, step(), programs={})) == (
        "FrameError", f"program {full!r} came without the digest that says it is the same here")
    assert error(at, frame(1, step(), programs={full: programs.digest_of(full), "no.Such": ""}))[0] == "FrameError"
    answer(at, frame(1, step()))


def test_a_program_with_another_base_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Any, c: Any, x: Any) -> Any:
        return x * 2 - 1

    def digest(base: type) -> str:
        type("Child", (base,), {"__module__": "somewhere"})
        return programs.digest_of.__wrapped__("somewhere.Child")

    for name in ("Probe", "Child"):
        monkeypatch.setitem(programs.PROGRAMS, f"somewhere.{name}", Probe)  # and gone again after the test
    changed = type("Probe", (Probe,), {"__module__": "somewhere", "same": other})
    assert digest(Probe) == digest(Probe) != digest(changed)


@pytest.mark.parametrize("as_argument", [False, True])
def test_a_program_inside_a_program_or_among_its_arguments_must_be_the_same_too(tmp_path: Path, as_argument: bool) -> None:
    at = host(tmp_path)
    welcome(at)
    inside, full = step(), f"{Unlike.__module__}.Unlike"
    if as_argument:
        inside["arguments"] = [{"value": describe(Unlike())}]
    else:
        inside["fn"][0]["fields"]["batch"] = describe(Unlike())
    own = {f"{Probe.__module__}.Probe": programs.digest_of(f"{Probe.__module__}.Probe")}
    assert error(at, frame(1, inside, programs=own))[1] == f"program {full!r} came without the digest that says it is the same here"


def test_what_was_built_once_is_built_anew_where_its_class_or_a_method_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, whose cell is run again: what was kept is the class of before."""
    def more(self: Any, c: Any, x: Any) -> Any:
        return x + 10
    more.__annotations__["return"] = "Tensor"

    def result(run: str) -> float:
        at = host(tmp_path / run)
        welcome(at)
        return float(answer(at, frame(1, step(), want=[2], clients=[0]))[0][0])

    assert result("before") == 1.0
    with monkeypatch.context() as patched:
        patched.setattr(Probe, "same", more)
        assert result("another method") == 10.0
    monkeypatch.setitem(programs.PROGRAMS, f"{Probe.__module__}.Probe", Probe)  # and that one again after the test
    dataclass(frozen=True)(type("Probe", (Probe,), {"same": more, "__module__": Probe.__module__, "__qualname__": "Probe"}))
    assert result("another class") == 10.0


def test_a_number_and_a_text_or_a_whole_number_and_a_fraction_are_not_taken_for_each_other() -> None:
    """Notes that compare equal in Python are different ones."""
    notes = [{"program": f"{Probe.__module__}.Probe", "fields": {"batch": batch, "least": 10}} for batch in (1, 1.0, True, 2)]
    assert [type(built(note).value.batch) for note in notes] == [int, float, bool, int]
    assert built(notes[0]) is built(dict(notes[0]))
    assert built(notes[0]).value.batch == 1
