"""Shards in Ray's actors: bit for bit those of one process, named when an actor dies, and gone when the engine is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hospitals
import numpy as np
import psutil
import pytest
import torch
from running import command
from torch import Tensor

from rookery import SCAFFOLD, Compositional, Data, FedAvg, FedDRO, Federation, Minimization, Program
from rookery.engines import Ray, Shards
from rookery.errors import EngineError, NonFinite, StateLost
from rookery.federation import Client
from rookery.federation.engine import ENGINES
from rookery.models import mlp
from rookery.objectives import cross_entropy
from rookery.problems import Model
from rookery.training.checkpoint import load, save

with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'rookery[ray]'")
ROWS, D = 3, 4


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in the actors: sums over several threads round differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="class")
def cluster() -> Iterator[None]:
    """A Ray of the user's own, which engines use and leave running."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    assert ray.is_initialized()
    ray.shutdown()


def clients(number: int) -> Data:
    r = np.random.default_rng(0)
    return Data({"a": torch.from_numpy(r.standard_normal((number * ROWS, D), dtype=np.float32)),
                 "b": torch.from_numpy(r.standard_normal(number * ROWS, dtype=np.float32))},
                tuple(f"c{k}" for k in range(number)), np.full(number, ROWS))


def least_squares() -> Minimization:
    return Minimization(lambda x, b: (b.a @ x - b.b).square().mean())


def squared_mean() -> Compositional:
    return Compositional(f=lambda z: z.square().sum(), g=lambda x, b: (b.a @ x - b.b).square().mean()[None])


@dataclass(frozen=True)
class Own(Program):
    def divided(self, c: Client, x: Tensor, by: int) -> Tensor:
        return x / by

    def mean_row(self, c: Client, x: Tensor) -> Tensor:
        return x + c.rows().inputs.mean(0)


def test_without_ray_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['ray'] = None\nfrom rookery.engines import Ray, Shards\nfrom rookery.errors import EngineError\n" \
           "try: Ray()\nexcept EngineError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "the ray engine needs Ray, which is not installed: pip install 'rookery[ray]'\n"


@pytest.mark.slow
@with_ray
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_client_and_an_actor_that_fail_are_named_and_nothing_is_left_behind() -> None:
    import ray

    before = set(psutil.Process().children(recursive=True))
    with Ray(3, "loop") as engine:
        fed = Federation(least_squares(), clients(30), engine=engine)
        x = fed.broadcast(torch.ones(D))
        with pytest.raises(NonFinite, match="client 'c17'"):
            fed.mean(fed.map(Own().divided, x, np.where(np.arange(30) == 17, 0, 1)))
        assert fed.mean(x).tolist() == [1.0] * D
        number = ray.get(engine.shards[1].__ray_call__.remote(lambda self: os.getpid()))
        started = set(psutil.Process().children(recursive=True)) - before
        os.kill(number, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(StateLost, match="the actor of shard 2 of 3 has ended, and what its clients 'c10' to 'c19' held is lost"):
                fed.mean(fed.broadcast(torch.ones(D)))
    with pytest.raises(EngineError, match="was closed"):
        fed.mean(fed.broadcast(torch.ones(D)))
    assert number in {process.pid for process in started}
    assert not psutil.wait_procs(started, timeout=60)[1]
    assert not ray.is_initialized()


@pytest.mark.slow
@with_ray
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("cluster", "one_thread")
class TestActors:
    @pytest.mark.parametrize(("problem", "algorithm"), [(least_squares(), FedAvg(0.1, 3, 2)), (squared_mean(), FedDRO(0.1, 0.3, 3, 2))],
                             ids=["FedAvg", "FedDRO"])
    def test_ten_thousand_clients_in_four_actors_are_those_of_four_shards_bit_for_bit(self, problem: Any, algorithm: Any) -> None:
        data, ends, feds = clients(10_000), [], []
        with Ray(4) as ray:
            for engine in (ray, Shards(4)):
                fed = Federation(problem, data, engine=engine, weights=[1 + k % 3 for k in range(10_000)])
                state = algorithm.init(fed, torch.zeros(D))
                for _ in range(3):
                    state = algorithm.round(fed, state)
                ends.append(state.x)
                feds.append(fed)
        assert float(ends[0].norm()) > 1e-3
        assert torch.equal(*ends)
        assert feds[0].ledger == feds[1].ledger

    def test_a_net_cohorts_a_checkpoint_and_collected_rows(self, tmp_path: Path) -> None:
        model, plain = Model(mlp(D, 5, 2)), clients(20)
        data = Data({"inputs": plain.fields["a"], "labels": (plain.fields["b"] > 0).long()}, plain.names, plain.sizes)
        algorithm, ends, rows = SCAFFOLD(0.1, 2, 2), [], []
        with Ray(3, "loop") as ray:
            for engine in (ray, Shards(3, "loop")):
                fed = Federation(cross_entropy(model), data, engine=engine, clients_per_round=4, seed=2)
                state = algorithm.round(fed, algorithm.init(fed, model.vector()))
                if engine is ray:
                    save(tmp_path / "state", algorithm, fed, state)
                    state = load(tmp_path / "state", algorithm, fed)
                for _ in range(4):
                    state = algorithm.round(fed, state)
                S = fed.cohort(5)
                rows.append(S.collect(S.map(Own().mean_row, S.broadcast(torch.zeros(D)))))
                ends.append(state.x)
        assert rows[0].shape == (5, D)
        assert torch.equal(*ends)
        assert torch.equal(*rows)

    def test_an_engine_that_nobody_uses_leaves_its_actors_to_the_next(self) -> None:
        def used(engine: Ray) -> list[Any]:
            fed = Federation(least_squares(), clients(4), engine=engine)
            assert fed.mean(fed.broadcast(torch.ones(D))).tolist() == [1.0] * D
            return list(engine.shards)

        first = used(Ray(2, "loop"))
        with Ray(3, "loop") as second:
            later = used(second)
            assert set(first) < set(later)
            import ray

            ray.kill(later[0])
        with Ray(2, "loop") as third:
            assert not set(used(third)) & set(later)  # which were ended with their engine

    def test_a_fit_on_a_cluster_is_the_fit_in_four_shards(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(hospitals.write(tmp_path))
        words = ["fit", "all.csv", "--label", "outcome", "--site", "hospital", "--positive", "ill", "--goal", "auc", "--rounds", "2",
                 "--quiet"]
        assert command(monkeypatch, *words, "--on", "ray", "--out", "ray") == 0
        monkeypatch.setitem(ENGINES, "ray", "test_ray:FourShards")
        assert command(monkeypatch, *words, "--on", "ray", "--out", "shards") == 0
        assert Path("ray/bundle/model.safetensors").read_bytes() == Path("shards/bundle/model.safetensors").read_bytes()


class FourShards(Shards):
    """What the engine ray is without a cluster."""

    def __init__(self) -> None:
        super().__init__(4)
