"""Noise at the clients: keyed like their samples, the same on every engine; torch's global generator is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery import Data, FedAvg, Federation, Minimization, Program
from rookery.engines import Wire
from rookery.errors import AlgorithmError
from rookery.federation import Client, rng
from rookery.federation.noise import Noise
from rookery.training import load, save

ENGINES = ("loop", "vectorised", "wire", "auto")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Noisy(FedAvg):
    """FedAvg with normal noise in the direction, and a coordinate left out at random. With scale=0 and keep=1 it is FedAvg."""

    title: ClassVar[str] = ""  # not the FedAvg that a file names
    scale: float = 0.5
    keep: float = 0.7

    def step(self, c: Client, x: Tensor, lr: float) -> Tensor:
        noise = c.noise(x)  # before the draw: it must not shift the samples
        direction = c.gradient(x, c.draw(self.batch)) + self.scale * noise
        return x - lr * direction * (c.noise(x, "uniform") < self.keep)


@dataclass(frozen=True)
class Listen(Program):
    """What the clients' noise is."""

    def hear(self, c: Client, x: Tensor, heard: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.cat([heard[1:], torch.stack([c.noise(x), c.noise(x), c.noise(x, "uniform")])[None]])


@dataclass(frozen=True)
class Global(FedAvg):
    title: ClassVar[str] = ""  # not the FedAvg that a file names
    late: bool = False

    def step(self, c: Client, x: Tensor, lr: float) -> Tensor:
        x = x - lr * c.gradient(x, c.draw(self.batch))
        return x + torch.randn(x.shape) if lr < 0.1 or not self.late else x


def data(names: str = "abc", sizes: tuple[int, ...] = (4, 6, 5)) -> Data:
    rows = {name: {"u": torch.randn(n, 3, generator=torch.Generator().manual_seed(n))} for name, n in zip("abc", sizes, strict=True)}
    return Data.from_parts({name: rows[name] for name in names})


def problem() -> Minimization:
    return Minimization(lambda x, b: (x - b.u).square().sum(1).mean())


def run(engine: Any, algorithm: Any, rounds: int = 3, rows: Data | None = None, seed: int = 0) -> Tensor:
    fed = Federation(problem(), rows or data(), engine=engine, seed=seed)
    state = algorithm.init(fed, torch.ones(3))
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return state.x


def heard(fed: Federation, times: int, like: Any = None) -> tuple[Tensor, Any]:
    """(clients, repetitions, 3, d): one call's noise, and the handle that it came with."""
    X, each = fed.iterate(Listen().hear, (fed.broadcast(torch.zeros(50)), fed.broadcast(torch.zeros(times, 3, 50))), steps=times,
                          same_draws_as=like)
    out = []
    for k in range(fed.population):
        other, each = fed.map(Keep().one, each, np.eye(fed.population)[k])
        out.append(fed.sum(other))
    return torch.stack(out), X


@dataclass(frozen=True)
class Keep(Program):
    def one(self, c: Client, value: Tensor, mine: float) -> tuple[Tensor, Tensor]:
        return mine * value, value


@pytest.mark.parametrize("local_steps", [4, (1, 4, 2), (3, 3, 4)])
@pytest.mark.parametrize("batch", [2, None])
def test_engines_agree_on_a_noisy_method(local_steps: Any, batch: int | None) -> None:
    algorithm = Noisy(0.1, local_steps, batch)
    expected = run("loop", algorithm)
    assert torch.equal(run("wire", algorithm), expected)
    for engine in ("vectorised", "auto"):
        torch.testing.assert_close(run(engine, algorithm), expected)
    assert not torch.allclose(run("loop", algorithm, seed=1), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_its_noise_the_method_is_the_plain_one_on_the_same_samples(engine: str) -> None:
    torch.testing.assert_close(run(engine, Noisy(0.1, 3, 2, scale=0.0, keep=1.0)), run("loop", FedAvg(0.1, 3, 2)))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_order_of_the_clients_does_not_matter(engine: str) -> None:
    torch.testing.assert_close(run(engine, Noisy(0.1, 3, 2), rows=data("cab")), run("loop", Noisy(0.1, 3, 2)))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_resumed_run_has_the_same_noise(engine: str, tmp_path: Path) -> None:
    def federation() -> Federation:
        return Federation(problem(), data(), engine=Wire(tmp_path / "sites") if engine == "wire" else engine)

    algorithm, fed = Noisy(0.1, 3, 2), federation()
    state = algorithm.round(fed, algorithm.init(fed, torch.ones(3)))
    save(tmp_path / "half", algorithm, fed, state)
    other = federation()
    torch.rand(7)
    resumed = algorithm.round(other, load(tmp_path / "half", algorithm, other))
    assert torch.equal(resumed.x, algorithm.round(fed, state).x)


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_clients_calls_repetitions_and_places_have_noise_of_their_own(engine: str) -> None:
    fed = Federation(problem(), data(), engine=engine)
    first, X = heard(fed, 4)
    second, _ = heard(fed, 4)
    again, _ = heard(fed, 4, like=X)
    assert torch.equal(first, again)
    draws = torch.cat([first[:, :, :2].reshape(-1, 50), second[:, :, :2].reshape(-1, 50)]).double()  # 48 normal vectors
    correlation = torch.corrcoef(draws) - torch.eye(48)
    assert float(correlation.abs().max()) < 0.65  # of 1128 pairs of 50 numbers; two equal vectors would give 1


def test_engines_agree_on_the_noise_itself() -> None:
    expected = heard(Federation(problem(), data(), engine="loop"), 4)[0]
    assert torch.equal(heard(Federation(problem(), data(), engine="wire"), 4)[0], expected)
    torch.testing.assert_close(heard(Federation(problem(), data(), engine="vectorised"), 4)[0], expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_laws_are_those_they_are_called(dtype: torch.dtype) -> None:
    """Kolmogorov's distance, and the moments; 200 000 numbers, so that chance stays far below the bounds."""
    n = 200_000
    keys = rng.as_keys(range(20))
    normal = Noise((100, 100), dtype, CPU).numbers(keys, 0, 0)
    assert normal.shape == (20, 100, 100)
    assert normal.dtype == dtype
    z = normal.double().reshape(-1).sort().values
    digits = 0.01 if dtype == torch.bfloat16 else 0.0  # what rounding adds
    assert abs(float(z.mean())) < 0.01 + digits
    assert abs(float(z.var()) - 1) < 0.02 + digits
    assert abs(float((z**4).mean()) - 3) < 0.15
    assert float((torch.special.ndtr(z) - torch.arange(n) / n).abs().max()) < 0.005 + digits
    u = Noise((100, 100), dtype, CPU, "uniform").numbers(keys, 0, 0).double().reshape(-1).sort().values
    assert float(u[0]) >= 0
    assert float(u[-1]) < 1
    assert float((u - torch.arange(n) / n).abs().max()) < 0.005 + digits


def test_noise_is_made_in_blocks_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Noise((7,), torch.float64, CPU).numbers(rng.as_keys(range(5)), 1, 2)
    monkeypatch.setattr("rookery.federation.noise.BLOCK", 15)
    assert torch.equal(Noise((7,), torch.float64, CPU).numbers(rng.as_keys(range(5)), 1, 2), whole)
    assert Noise((), torch.float32, CPU).numbers(rng.as_keys([1, 2]), 0, 0).shape == (2,)
    assert Noise((0,), torch.float32, CPU).numbers(rng.as_keys([1, 2]), 0, 0).shape == (2, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_global_generator_is_refused_at_clients(engine: str) -> None:
    with pytest.raises(AlgorithmError, match=r"Global\.step used torch's global generator.*c\.noise"):
        run(engine, Global(0.1, 2, 2))


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_the_global_generator_is_refused_in_a_later_round_too(engine: str) -> None:
    algorithm, fed = Global(0.2, 2, 2, late=True), Federation(problem(), data(), engine=engine)
    state = algorithm.round(fed, algorithm.init(fed, torch.ones(3)))
    with pytest.raises(AlgorithmError, match=r"c\.noise"):
        Global(0.05, 2, 2, late=True).round(fed, state)


@dataclass(frozen=True)
class Wrong(FedAvg):
    title: ClassVar[str] = ""  # not the FedAvg that a file names
    kind: str = "normal"

    def step(self, c: Client, x: Tensor, lr: float) -> Tensor:
        return c.noise(x.long() if self.kind == "normal" else x, self.kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "text"), [("normal", "int64"), ("laplace", "'laplace'")])
def test_noise_of_another_form_is_refused(kind: str, text: str) -> None:
    with pytest.raises(AlgorithmError, match=text):
        run("loop", Wrong(0.1, kind=kind))
