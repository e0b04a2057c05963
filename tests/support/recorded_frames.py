"""A federation on the wire whose frames of all kinds are recorded, with what the site held before; and how to take a frame apart."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from rookery import SCAFFOLD, Compositional, Data, FedAvg, FedDRO, Federation, Minimization, Placed, Program
from rookery.engines import Wire, frames
from rookery.engines.frames import MAGIC, unpack
from rookery.engines.site import Site
from rookery.federation import Client

steady = settings(deadline=None, derandomize=True)
NAMES = ("a", "b", "c", "d")
CALLS: list[str] = []
text = st.text(alphabet='aZ9_. é"\\\n\0€😀\ud800', max_size=12)


def loss(x: Tensor, b: Any) -> Tensor:
    CALLS.append("loss")
    return 0.5 * (x - b.u).square().sum(-1).mean()


def rows() -> Data:
    own = torch.Generator().manual_seed(0)
    return Data.from_parts({name: {"u": torch.randn(4 + k, 3, generator=own, dtype=torch.float64)} for k, name in enumerate(NAMES)})


def plain() -> Minimization:
    return Minimization(loss)


def composed() -> Compositional:
    return Compositional(lambda z: z.square().sum(), lambda x, b: (x - b.u).mean(0))


def prepared() -> Minimization:
    return Minimization(loss, statistics=lambda x, b: b.u.sum(0), finish=lambda total: Minimization(lambda x, b: loss(x - total, b)))


@dataclass(frozen=True)
class Small(Program):
    factor: float = 2.0

    def scale(self, c: Client, x: Tensor) -> Tensor:
        CALLS.append("scale")
        return self.factor * x

    def divide(self, c: Client, x: Tensor, by: float) -> tuple[Tensor, Tensor]:
        return x / by, x + 1

    def twice(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    def views(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:2], x[1:]

    def _own(self, c: Client, x: Tensor) -> Tensor:
        return x

    def short(self, c: Client, x: Tensor) -> Tensor:
        return x.to(torch.int16)


def exchange(fed: Federation, value: float = 1.0) -> Tensor:
    mean: Tensor = fed.mean(fed.map(Small().scale, fed.broadcast(torch.full((3,), value, dtype=torch.float64))))
    return mean


@dataclass(frozen=True)
class Moment:
    """A site as it was, the genuine frame it got then, its reply, and what it held after."""

    site: Site
    frame: bytes
    reply: bytes
    after: dict[int, Any]

    def fresh(self) -> Site:
        return copy.copy(self.site)

    def moved(self, folder: Path) -> Moment:
        """The same with a copy of the site's checkpoints, for what may write to them."""
        assert self.site.folder is not None
        shutil.copytree(self.site.folder, folder)
        site = copy.copy(self.site)
        site.folder = folder
        return replace(self, site=site)

    @property
    def header(self) -> dict[str, Any]:
        return plain_header(self.frame)

    @property
    def tensors(self) -> dict[int, Tensor]:
        return unpack(self.frame)[1]

    @property
    def maps(self) -> list[int]:
        return [i for i, op in enumerate(self.header["ops"]) if op["op"] == "map"]


def plain_header(frame: bytes) -> dict[str, Any]:
    header, _ = unpack(frame)
    del header["v"], header["tensors"]
    return header


def values(site: Site) -> dict[int, Tensor]:
    """What a site of one client holds: the server's values, and the client's own."""
    return {**site.held.shared, **site.held.own[0]}


def held(site: Site) -> dict[int, Any]:
    return {id: (value.dtype, tuple(value.shape), value.contiguous().numpy().tobytes()) for id, value in values(site).items()}


def picture(site: Site) -> Any:
    """Everything a frame could change, bit by bit."""
    files = {} if site.folder is None else {p.name: p.read_bytes() for p in sorted(site.folder.iterdir())}
    setting = site.held.setting
    return held(site), sorted(site.versions), site.counter, site.last, id(setting), id(setting.problem), setting.constants, files


def record(tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    """Real frames of real runs: maps, takes, puts, the constants of prepare, saves and loads."""
    recorded: list[Moment] = []
    genuine = Site.answer

    def answer(self: Site, frame: bytes) -> bytes:
        before = copy.copy(self)
        reply = genuine(self, frame)
        assert "error" not in unpack(reply)[0]
        recorded.append(Moment(before, frame, reply, held(self)))
        return reply

    x = torch.ones(3, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Site, "answer", answer)
        for algorithm, problem in ((SCAFFOLD(lr=0.1, local_steps=2, batch=2), plain()), (FedAvg(lr=0.1, batch=2), prepared()),
                                   (FedDRO(lr=0.1, beta=0.5, local_steps=2, batch=3), composed())):
            wire = Wire(tmp_path_factory.mktemp("sites"))
            wire.run = f"run of {algorithm.title}"  # not a random one, so that every session tests the same frames
            fed = Federation(problem, rows(), engine=wire, clients_per_round=2, seed=1)
            fed.prepare(x)
            state = algorithm.init(fed, x)
            for _ in range(3):
                state = algorithm.round(fed, state)
            own = [value.id for value in state if isinstance(value, Placed)] or [1]
            wire.save("tag", own)
            wire.load("tag", {id: id for id in own}, {})
            algorithm.round(fed, state)
    return recorded


def bits(value: Tensor) -> bytes:
    return value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""


def seal(head: bytes, buffer: bytes = b"", magic: bytes = MAGIC, length: int | None = None) -> bytes:
    """A frame of these parts with a valid digest."""
    head += b" " * (-(len(head) + 8) % 8)
    front = magic + (len(head) if length is None else length).to_bytes(4, "little") + head
    return front + buffer + frames.sealed(front, frames.digest_of_tensors(buffer))


def parts(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """The whole header, and the buffer of the tensors."""
    length = int.from_bytes(frame[4:8], "little")
    return json.loads(frame[8 : 8 + length]), frame[8 + length : -16]


def sealed(header: Any, buffer: bytes = b"") -> bytes:
    return seal(json.dumps(header).encode(), buffer)


def scaffold(wire: Wire, rounds: int, clients_per_round: int = 2) -> tuple[Federation, Any]:
    fed = Federation(plain(), rows(), engine=wire, clients_per_round=clients_per_round)
    algorithm = SCAFFOLD(lr=0.1, local_steps=2, batch=2)
    state = algorithm.init(fed, torch.zeros(3, dtype=torch.float64))
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return fed, state


def of_step(moments: list[Moment]) -> Moment:
    """A frame whose third operation is SCAFFOLD's local step, at a site with state."""
    return next(m for m in moments if values(m.site) and [op["op"] for op in m.header["ops"]][:3] == ["map", "take", "map"])


def step_op(header: dict[str, Any]) -> dict[str, Any]:
    op: dict[str, Any] = header["ops"][2]
    assert op["fn"][1] == "step"
    return op
