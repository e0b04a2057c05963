"""One kind of problem as another: its oracles, and the sums it has to agree on."""

from __future__ import annotations

import pytest
import torch

from rookery import Batch, Federation, FedNest, as_bilevel
from rookery.errors import AlgorithmError
from rookery.objectives import kl_dro
from rookery.problems import testproblems as known


def test_a_reduced_problem_keeps_its_set_up_sums() -> None:
    k = known.compositional()
    fed = Federation(as_bilevel(kl_dro(lambda x, b: (b.A @ x).square().sum(1))), k.data)
    fed.prepare(k.x0)
    assert fed.ledger["setup"].exchanges == 1
    assert fed.problem.statistics is None
    with pytest.raises(AlgorithmError, match="inner variable"):
        FedNest(0.1).init(fed, k.x0)


@pytest.mark.parametrize("name", ["minimax", "compositional", "minimization"])
def test_embedded_oracles_are_the_derivatives_of_the_embedded_functions(name: str) -> None:
    k = known.ALL[name]()
    bilevel = as_bilevel(k.problem)
    batch = Batch(k.data.views(1))
    y = torch.randn(2, dtype=torch.float64) if k.y_star is not None else torch.zeros(0, dtype=torch.float64)
    v = torch.randn_like(y)
    arguments = {"f_x": (k.x0, y, batch), "f_y": (k.x0, y, batch), "g_y": (k.x0, y, batch), "g_yy": (k.x0, y, batch, v),
                 "g_xy": (k.x0, y, batch, v)}
    for oracle in bilevel.oracles:
        torch.testing.assert_close(bilevel.oracle(oracle)(*arguments[oracle]), getattr(bilevel, oracle)(*arguments[oracle]))
