"""The average-precision surrogate where numbers are extreme, and clients without positives: finite, right, and nothing at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rookery import FCSG, FCSGM, SOAP, Batch, Data, Federation, Model
from rookery.data import Positives, positive_counts
from rookery.errors import WeightError
from rookery.objectives import ap_surrogate

HALVES = [torch.float16, torch.bfloat16]
LABELS = [1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]


def raw(x: Tensor, b: Batch) -> Tensor:
    return b.inputs @ x


def squashed(x: Tensor, b: Batch) -> Tensor:
    return torch.sigmoid(b.inputs @ x)


def closed(inputs: np.ndarray, x: np.ndarray, margin: float, outer: Any, inner: Any, weight: Any, squash: bool) -> tuple[float, np.ndarray]:
    """Value and gradient in double precision by loops over the pairs, with all derivatives written out; a ratio of nothing is 1."""
    logits = inputs @ x
    s = 0.5 * (1 + np.tanh(logits / 2)) if squash else logits
    slope = (s * (1 - s))[:, None] * inputs if squash else inputs
    value, gradient = 0.0, np.zeros_like(x)
    for i in outer:
        up = down = 0.0
        d_up, d_down = np.zeros_like(x), np.zeros_like(x)
        for w, j in zip(weight, inner, strict=True):
            gap = max(margin - s[i] + s[j], 0.0)
            d_loss = 2 * gap * w * (slope[j] - slope[i])
            up, d_up = up + LABELS[j] * w * gap**2, d_up + LABELS[j] * d_loss
            down, d_down = down + w * gap**2, d_down + d_loss
        if down / len(inner) > 1e-8 * margin**2:
            value, gradient = value - up / down / len(outer), gradient - (d_up - up / down * d_down) / down / len(outer)
        else:
            value -= 1 / len(outer)
    return value, gradient


def batch(inputs: Tensor, outer: list[int], inner: list[int], importance: list[float] | None = None) -> Batch:
    labels = torch.tensor(LABELS)
    eta = {"inputs": inputs[inner][None], "labels": labels[inner][None]}
    eta |= {"importance": torch.tensor(importance)[None]} if importance else {}
    return Batch({"inputs": inputs[outer], "labels": labels[outer]}, torch.tensor(outer), Batch(eta, torch.tensor(inner)[None]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("squash", [True, False], ids=["squashed", "unsquashed"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0, 1e4, 1e9])
@pytest.mark.parametrize("margin", [1e-3, 0.5, 1.0, 4.0])
def test_value_and_gradient_are_those_of_double_loops_at_any_size_of_the_scores(margin: float, scale: float, squash: bool,
                                                                               dtype: torch.dtype) -> None:
    """Whole numbers times powers of two: the scores before a sigmoid are the same numbers in both precisions."""
    whole = torch.randint(-8, 9, (12, 2), generator=torch.Generator().manual_seed(3))
    inputs, x = whole.to(dtype), torch.tensor([1.0, 0.5], dtype=dtype) * 2.0 ** round(np.log2(scale))
    outer, inner = [0, 3, 7], [1, 3, 4, 0, 9, 9]
    weight = [0.5, 1.5, 1.0, 0.0, 2.0, 1.0]
    problem = ap_surrogate(squashed if squash else raw, margin)
    for given in (None, weight):
        b = batch(inputs, outer, inner, given)
        value, gradient = closed(whole.double().numpy(), x.double().numpy(), margin, outer, inner, given or [1.0] * 6, squash)
        found = problem.gradient(x, b)
        assert float(problem.value(x, b)) == pytest.approx(value, abs=1e-5 if dtype == torch.float32 else 1e-10)
        # in proportion to the largest it could be: where scores are saturated both are 0 but for rounding
        size = max(float(np.abs(gradient).max()), 1e-3 / scale, 1e-6)
        assert torch.isfinite(found).all()
        assert np.abs(found.double().numpy() - gradient).max() <= (2e-3 if dtype == torch.float32 else 1e-9) * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [2e-4, 1e-3, 1e-1])
def test_the_gradient_is_right_down_to_the_guard(share: float, dtype: torch.dtype) -> None:
    """A negative just within the margin and a positive half as far: u₁/u₂ = 1/5, and a slope as large as 1/share."""
    inputs = torch.tensor([[0.0], [-(1 - share)], [0.0], [-(1 - share / 2)]], dtype=dtype)
    x = torch.ones(1, dtype=dtype)
    b = batch(torch.cat([inputs, torch.zeros(8, 1, dtype=dtype)]), [0], [1, 3])
    problem = ap_surrogate(raw, 1.0)
    # ratio a²/(a² + c²) with gaps c = 1 − x(1 − share) of the negative, a = 1 − x(1 − share/2) of the positive
    c, a = share, share / 2
    slope = -(2 * a * c * (c * -(1 - share / 2) - a * -(1 - share))) / (a**2 + c**2) ** 2
    assert float(problem.value(x, b)) == pytest.approx(-0.2, rel=2e-3)
    assert float(problem.gradient(x, b)) == pytest.approx(slope, rel=5e-3)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [1e-19, 1e-3, 0.5, 1.0])
@pytest.mark.parametrize("share", [-1.0, 0.0, 1e-6, 1e-4, 1e-3, 0.1])
def test_it_stays_finite_where_the_denominator_vanishes(share: float, margin: float, dtype: torch.dtype) -> None:
    """Pairs beyond the margin, on it and just within, also where 1e-8·margin² is 0 in the numbers' precision."""
    gaps = torch.tensor([0.0, -(1 - share) * margin, 0.0, -(1 - share / 2) * margin], dtype=torch.float64)
    inputs = torch.cat([gaps, torch.zeros(8)]).to(dtype)[:, None]
    x, problem, b = torch.ones(1, dtype=dtype), ap_surrogate(raw, margin), batch(inputs, [0], [1, 3])
    value, gradient = problem.value(x, b), problem.gradient(x, b)
    assert -1 <= float(value) <= 0
    assert torch.isfinite(gradient).all()
    if share <= 0:
        assert (float(value), float(gradient)) == (-1, 0)
    u, pull = problem.g_pullback(x, b)
    assert torch.isfinite(pull(problem.f_slopes(u, b))).all()


@pytest.mark.parametrize("sizes", [(4, 6), (None, None)], ids=["drawn", "all rows"])
@pytest.mark.parametrize("precision", [None, *HALVES])
@pytest.mark.parametrize("make", [FCSG, SOAP])
def test_saturated_nets_train_on_in_any_precision(make: Any, precision: torch.dtype | None, sizes: Any) -> None:
    """Logits of ±1e4 through the sigmoid: scores are 0 and 1, pairs beyond the margin, and nothing is left to learn."""
    inputs = torch.tensor([[1.0], [-1.0], [-1.0], [1.0], [-1.0], [1.0]])
    labels = {"a": torch.tensor([1, 0, 0, 1, 0, 1]), "b": torch.tensor([1, 0, 0, 1, 0, 0])}  # one negative of b has a score of 1
    data = Data.from_parts({name: {"inputs": inputs, "labels": own} for name, own in labels.items()})
    fed = Federation(ap_surrogate(Model(nn.Linear(1, 1)), 0.9), data, precision=precision)
    x, algorithm = torch.tensor([1e4, 0.0]), make(0.1, 2, *sizes)
    state = algorithm.init(fed, x)
    for _ in range(3):
        state = algorithm.round(fed, state)
    assert torch.equal(state.x, x)


# clients without positives


def parts() -> Data:
    r = torch.Generator().manual_seed(0)
    made = {}
    for name, labels in (("a", [1, 0, 0, 1, 0, 0]), ("none", [0] * 6), ("b", [0, 1, 0, 0, 0, 0]), ("neither", [0] * 6)):
        made[name] = {"inputs": torch.randn(len(labels), 2, generator=r, dtype=torch.float64), "labels": torch.tensor(labels)}
    return Data.from_parts(made)


X = torch.tensor([0.4, -0.2], dtype=torch.float64)
METHODS = [FCSG(0.5, 3, 4, 5), FCSGM(0.5, 3, 4, 5, beta=0.4), SOAP(0.5, 3, 4, 5, gamma=0.6), SOAP(0.5, 3, 4, 5, gamma=0.6, beta=0.4),
           SOAP(0.5, 3)]


def ends(data: Data, algorithm: Any, rounds: int = 3, **options: Any) -> Tensor:
    fed = Federation(ap_surrogate(squashed, sampling=options.pop("sampling", None)), data, **options)
    state = algorithm.init(fed, X)
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return state.x  # type: ignore[no-any-return]


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda a: f"{a.title}-{a.outer}-{getattr(a, 'beta', 1)}")
@pytest.mark.parametrize(("engine", "sampling"), [("loop", Positives()), ("vectorised", Positives(enrich=2))], ids=["loop", "vectorised"])
def test_a_client_without_positives_leaves_its_point_where_it_is(engine: str, sampling: Positives, algorithm: Any) -> None:
    alone = Data.from_parts({"none": parts().views(1), "neither": parts().views(3)})
    assert torch.equal(ends(alone, algorithm, engine=engine, sampling=sampling), X)


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda a: f"{a.title}-{a.outer}-{getattr(a, 'beta', 1)}")
def test_weighted_by_positives_such_a_client_might_as_well_be_away(algorithm: Any) -> None:
    data = parts()
    without = Data.from_parts({name: data.views(k) for k, name in ((0, "a"), (2, "b"))})
    weighted = ends(data, algorithm, weights=positive_counts(data).tolist(), engine="loop")
    left = ends(without, algorithm, weights=positive_counts(without).tolist(), engine="loop")
    torch.testing.assert_close(weighted, left, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(weighted, ends(data, algorithm, engine="loop"))


@pytest.mark.parametrize("cohorts", ["uniform", "weighted"])
def test_no_cohort_is_drawn_of_clients_without_positives_alone(cohorts: str) -> None:
    data = Data.from_parts({f"{name}-{copy}": parts().views(k) for copy in range(2) for k, name in enumerate(parts().names)})
    counts = positive_counts(data).tolist()
    fed = Federation(ap_surrogate(squashed), data, weights=counts, clients_per_round=1, cohorts=cohorts, engine="loop")
    algorithm = SOAP(0.5, 2, 4, 5, gamma=0.6)
    state = algorithm.init(fed, X)
    for _ in range(24):
        state = algorithm.round(fed, state)
        assert torch.isfinite(state.x).all()
    assert not torch.equal(state.x, X)
    drawn = {name for _ in range(60) for name in fed.cohort().names}
    assert drawn == {"a-0", "b-0", "a-1", "b-1"}


def test_where_nobody_has_positives_their_numbers_are_no_weights() -> None:
    data = Data.from_parts({"none": parts().views(1), "neither": parts().views(3)})
    with pytest.raises(WeightError, match="the weights are all 0; give at least one client a positive weight"):
        Federation(ap_surrogate(squashed), data, weights=positive_counts(data).tolist())
