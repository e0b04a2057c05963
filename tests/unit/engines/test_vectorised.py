"""All clients as one graph: results of one dtype, and problems that are not kept."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verbs import engines

from rookery import Federation, Program
from rookery.objectives import kl_dro
from rookery.problems import testproblems as known


@dataclass(frozen=True)
class Scaled(Program):
    def scaled(self, c: Any, x: Tensor, number: float) -> Tensor:
        return x.sum() * number


@engines
def test_results_have_one_dtype_on_every_engine(engine: str) -> None:
    k = known.minimization(sizes=(4, 4, 4, 4))
    fed = Federation(k.problem, k.data, engine=engine)
    x = fed.broadcast(torch.ones(3, dtype=torch.float32))
    one = fed.map(Scaled().scaled, x, 0.5)
    many = fed.map(Scaled().scaled, x, np.asarray([1.0, 2.0, 3.0, 4.0]))
    assert [v.dtype for v in fed.mean(one, many)] == [torch.float32, torch.float32]
    assert fed.ledger["train"].bytes_up == 2 * 4 * 4


def test_deleted_problems_do_not_stay() -> None:
    k = known.compositional(sizes=(4, 4, 4, 4))
    problem = kl_dro(lambda x, b: (b.A @ x).square().sum(1))
    fed = Federation(problem, k.data, engine="vectorised")
    fed.prepare(k.x0)
    gone = weakref.ref(problem)
    del problem, fed
    gc.collect()
    assert gone() is None
