"""A host in this process, with rows that a test can tell apart, and the frames that a server of any kind could send it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rookery import Data, Minimization, Program
from rookery.engines.frames import pack, unpack
from rookery.engines.programs import describe, digest_of, named
from rookery.engines.roster import hello
from rookery.federation import Client
from rookery.sites import Host, Rules
from rookery.sites.host import Own

RUN, ROWS = "a run", 40


def loss(x: Tensor, b: Any) -> Tensor:
    return 0.5 * (x - b.u).square().sum(-1).mean()


def made(asked: dict[str, Any]) -> tuple[Minimization, Data]:
    """Two clients whose rows are their own numbers."""
    u = torch.arange(float(ROWS), dtype=torch.float64)[:, None]
    return Minimization(loss), Data.from_parts({"a": {"u": u}, "b": {"u": 1000 + u}})


@dataclass(frozen=True)
class Probe(Program):
    """What a server would like to know."""

    batch: int = 5
    least: int = 10

    def drawn(self, c: Client, x: Tensor) -> Tensor:
        """The rows themselves."""
        return c.draw(self.batch).u[:, 0].sort().values  # type: ignore[attr-defined, no-any-return]

    def same(self, c: Client, x: Tensor) -> Tensor:
        return x + 1

    def pair(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x + 2

    def told(self, c: Client, x: Tensor) -> Tensor:
        return torch.tensor([list(b"north"), list(b"s\xffd\n\0")], dtype=torch.uint8)

    def many(self, c: Client, x: Tensor, number: int) -> Tensor:
        for _ in range(number):
            x = x + c.draw(self.batch).u.mean()  # type: ignore[attr-defined]
        return x

    def asks(self, c: Client, x: Tensor, number: int) -> Tensor:
        b = c.draw(self.batch)
        for _ in range(number):
            x = x - c.gradient(x, b)  # type: ignore[attr-defined]
        return x

    def fails(self, c: Client, x: Tensor) -> Tensor:
        raise ZeroDivisionError("in the function")

    def _own(self, c: Client, x: Tensor) -> Tensor:
        return x


ALL = Rules(algorithms=("Probe",), min_batch=1, salt="none")


def host(folder: Path, rules: Rules = ALL, **changes: Any) -> Host:
    return Host("north", changes.get("owner", Own(made)), rules, folder)


def greeting(run: Any = RUN, *, seed: int = 3, min_batch: int = 1, **changes: Any) -> bytes:
    return pack({"run": run, "hello": {**hello({}, seed, None, min_batch), **changes}}, {})


def step(method: str = "same", *, program: Program | None = None, out: int = 2, times: Any = 1, call: int = 0) -> dict[str, Any]:
    return {"op": "map", "fn": [describe(program or Probe()), method], "arguments": [{"ref": 1}], "out": [out], "times": times,
            "phase": "train", "call": call, "known": 0}


def frame(k: int, *ops: dict[str, Any], run: str = RUN, base: int = 0, want: Sequence[int] = (), clients: Sequence[int] = (0, 1),
          size: int = 1, **changes: Any) -> bytes:
    """A frame that brings value 1."""
    programs = {name: digest_of(name) for name in named(list(ops))}
    return pack({"run": run, "k": k, "base": base, "programs": programs, "clients": list(clients), "ops": list(ops), "want": list(want),
                 "free": [], "forget": [], **changes}, {1: torch.zeros(size, dtype=torch.float64)})


def welcome(at: Host, *more: Any, **changes: Any) -> dict[str, Any]:
    header = unpack(at.answer(greeting(*more, **changes)))[0]
    assert "error" not in header, header
    found: dict[str, Any] = header["welcome"]
    return found


def answer(at: Host, asked: bytes) -> dict[int, Tensor]:
    header, tensors = unpack(at.answer(asked))
    assert "error" not in header, header
    return tensors


def error(at: Host, asked: bytes) -> tuple[str, str]:
    name, message = unpack(at.answer(asked))[0]["error"]
    return name, message
