"""KL-regularised robust losses beyond the range of the exponential, and before the clients have agreed on a shift."""

from __future__ import annotations

import pytest
import torch
from rounds import rounds

from rookery import Data, FedDRO, Federation
from rookery.errors import AlgorithmError, ProblemError
from rookery.objectives import kl_dro


def test_kl_dro_keeps_the_pull_of_rows_beyond_the_range_of_the_exponential() -> None:
    data = Data.from_parts({"c": {"l": torch.tensor([0.1] * 19 + [5.0])}})
    fed = Federation(kl_dro(lambda x, b: b.l * x, lam=0.05), data)
    fed.prepare(torch.ones(1))
    algorithm = FedDRO(1e-3, 1.0)
    state = algorithm.round(fed, algorithm.init(fed, torch.ones(1)))
    assert 0.1 < float((1 - state.x) / 1e-3) <= 5.0  # exactly it would be 5; beyond the range the pull is weaker, but there


def test_kl_dro_says_when_it_was_not_prepared_and_when_losses_are_below_the_least() -> None:
    data = Data.from_parts({"c": {"l": torch.tensor([-3.0, 2.0])}})
    fed = Federation(kl_dro(lambda x, b: b.l * x), data)
    with pytest.raises(AlgorithmError, match="prepare"):
        FedDRO(0.1).init(fed, torch.ones(1))
    with pytest.raises(ProblemError, match=r"1 losses lie below least=0\.0"):
        fed.prepare(torch.ones(1))
    small = Federation(kl_dro(lambda x, b: b.l * x, lam=0.001, least=-5.0), data)
    small.prepare(torch.ones(1))
    assert torch.isfinite(rounds(FedDRO(1e-4), small, FedDRO(1e-4).init(small, torch.ones(1)), 2).x).all()
