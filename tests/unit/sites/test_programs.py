"""Programs are named, and run only where they are the same as at the server: they, their bases, and those that they are made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import Probe, answer, error, frame, host, step, welcome

from rookery import Program
from rookery.engines import frames
from rookery.engines.frames import describe


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
    assert error(at, frame(1, step(), programs={full: frames.digest_of(full), "no.Such": ""}))[0] == "FrameError"
    answer(at, frame(1, step()))


def test_a_program_with_another_base_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Any, c: Any, x: Any) -> Any:
        return x * 2 - 1

    def digest(base: type) -> str:
        type("Child", (base,), {"__module__": "somewhere"})
        return frames.digest_of.__wrapped__("somewhere.Child")

    for name in ("Probe", "Child"):
        monkeypatch.setitem(frames.PROGRAMS, f"somewhere.{name}", Probe)  # and gone again after the test
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
    own = {f"{Probe.__module__}.Probe": frames.digest_of(f"{Probe.__module__}.Probe")}
    assert error(at, frame(1, inside, programs=own))[1] == f"program {full!r} came without the digest that says it is the same here"
