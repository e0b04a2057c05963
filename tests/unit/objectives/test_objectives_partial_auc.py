"""The partial AUC: against double loops, its limits, finite differences, and on every engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from draws import ENGINES, draw_of
from rare import F64, linear, rows
from torch import Tensor, nn

from rookery import FCSG, FCSGM, Batch, Data, Federation, Minimax, Model
from rookery.data import Positives, Request
from rookery.errors import DataError, ProblemError
from rookery.objectives import auc, partial_auc
from rookery.problems import Pairwise, conditional_as_compositional

X = torch.tensor([0.8, -0.3, 0.6], **F64)


def sites() -> Data:
    return Data.from_parts({"a": rows(12, 4, 0), "b": rows(9, 2, 1), "none": rows(9, 0, 2), "all": rows(5, 5, 3)})


def score(x: Tensor, inputs: Tensor, squash: bool) -> np.ndarray:
    found: np.ndarray = (torch.sigmoid(inputs @ x) if squash else inputs @ x).numpy()
    return found


def twin(up: Any, down: Any, margin: float, lam: float) -> float:
    """The definition by double loop."""
    values = [lam * math.log(sum(math.exp(max(margin - s + t, 0.0) ** 2 / lam) for t in down) / len(down)) for s in up]
    return sum(values) / len(values)


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize(("margin", "lam"), [(1.0, 1.0), (0.4, 0.3), (2.0, 5.0)])
def test_the_value_is_the_double_loop(margin: float, lam: float, squash: bool) -> None:
    data = sites()
    problem: Any = partial_auc(linear, lam=lam, margin=margin, squash=squash)
    assert problem.sampling == Positives("labels", inner="negatives")
    selection = problem.sampling.select(draw_of(data), Request(5, 7))
    for client in (0, 1):
        own = data.views(client)
        s, up = score(X, own["inputs"], squash), (own["labels"] > 0).numpy()
        whole = problem.sampling.whole(own)
        assert float(problem.value(X, whole)) == pytest.approx(twin(s[up], s[~up], margin, lam), rel=1e-12)
        drawn = problem.sampling.fetch(data, {name: value[client, 0] for name, value in selection.items()})
        assert bool((drawn.labels > 0).all())
        assert bool((drawn.inner.labels <= 0).all())
        expected = twin(score(X, drawn.inputs, squash), score(X, drawn.inner.inputs[0], squash), margin, lam)
        assert float(problem.value(X, drawn)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("squash", [True, False])
def test_the_pairwise_form_is_the_same_at_one_client(squash: bool) -> None:
    own = rows(12, 4, 0)
    fed: Any = Federation(partial_auc(linear, Pairwise, lam=0.5, squash=squash), Data.from_parts({"a": own}))
    problem = fed.prepare(X)
    assert isinstance(problem, Pairwise)
    assert problem.share == pytest.approx(1 / 3)
    s, up = problem.s(X, Batch(own)), own["labels"] > 0
    u = problem.pair_losses(s[up], s[~up]).mean(1)
    conditional: Any = partial_auc(linear, lam=0.5, squash=squash)
    torch.testing.assert_close(problem.f(u).mean(), conditional.value(X, conditional.sampling.whole(own)), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(problem.f_slope(u), 0.5 / u)


def test_a_large_lam_is_the_pair_loss_and_a_small_one_the_worst_negative() -> None:
    own = rows(12, 4, 0)
    whole = Positives().whole(own)
    plain: Any = auc(linear, kind=Pairwise, margin=0.1)
    s, up = plain.s(X, Batch(own)), own["labels"] > 0
    losses = plain.pair_losses(s[up], s[~up])
    large: Any = partial_auc(linear, lam=1e6, margin=0.1)
    assert float(large.value(X, whole)) == pytest.approx(float(losses.mean()), rel=1e-5)
    worst, gaps = losses.amax(1).mean(), []
    for lam in (0.1, 0.03, 0.0101):
        small: Any = partial_auc(linear, lam=lam, margin=0.1)
        gaps.append(float(worst - small.value(X, whole)))
        assert 0 < gaps[-1] <= lam * math.log(losses.shape[1])
    assert gaps[0] > gaps[1] > gaps[2]
    values = [float(partial_auc(linear, lam=lam).value(X, whole)) for lam in (0.1, 0.5, 2.0, 50.0)]  # type: ignore[union-attr]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("squash", [True, False])
def test_the_gradient_is_a_finite_difference(squash: bool) -> None:
    data = sites()
    problem: Any = partial_auc(linear, lam=0.4, squash=squash)
    selection = problem.sampling.select(draw_of(data), Request(3, 4))
    for b in (problem.sampling.whole(data.views(1)), problem.sampling.fetch(data, {n: v[1, 0] for n, v in selection.items()})):
        found = problem.gradient(X, b)
        for i in range(3):
            e = 1e-3 * torch.eye(3, **F64)[i]
            difference = (8 * (problem.value(X + e, b) - problem.value(X - e, b)) - problem.value(X + 2 * e, b)
                          + problem.value(X - 2 * e, b)) / (12 * 1e-3)
            assert float(found[i]) == pytest.approx(float(difference), rel=1e-6)


@pytest.mark.parametrize("request_", [Request(), Request(3, 4)], ids=["all rows", "drawn"])
def test_clients_of_one_class_have_value_and_gradient_zero(request_: Request) -> None:
    data = sites()
    problem: Any = partial_auc(linear, lam=0.4)
    for client in (2, 3):
        selection = {} if request_ == Request() else problem.sampling.select(draw_of(data), request_)
        b = problem.sampling.fetch(data, {n: v[client, 0] for n, v in selection.items()}) if selection else \
            problem.sampling.whole(data.views(client))
        assert float(problem.value(X, b)) == 0
        assert torch.equal(problem.gradient(X, b), torch.zeros(3, **F64))


@pytest.mark.parametrize(("make", "sizes"), [(FCSG, (None, None)), (FCSGM, (4, 6))], ids=["all rows", "drawn"])
def test_engines_agree(make: Any, sizes: Any) -> None:
    ends = []
    for engine in ENGINES:
        fed: Any = Federation(partial_auc(linear, lam=0.5), sites(), engine=engine, seed=5)
        state = make(0.3, 3, *sizes).init(fed, X)
        for _ in range(2):
            state = make(0.3, 3, *sizes).round(fed, state)
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert torch.equal(ends[0], ends[2])
    assert not torch.equal(ends[0], X)


def test_exponentials_stay_in_range_in_single_precision() -> None:
    own = {name: value.float() if value.is_floating_point() else value for name, value in rows(12, 4, 0).items()}
    for lam, squash, scale in ((2 / 60, True, 1e4), (1 / 60, False, 1.0), (1 / 60, False, 1e4)):
        problem: Any = partial_auc(linear, lam=lam, squash=squash)
        x, b = scale * X.float(), problem.sampling.whole(own)
        assert torch.isfinite(problem.value(x, b))
        assert torch.isfinite(problem.gradient(x, b)).all()
        if not squash:  # also pairs far beyond the edge pull, as the logarithm of their loss does
            assert float(problem.gradient(x, b).norm()) * scale > 0.01
        pairs = partial_auc(linear, Pairwise, lam=lam, squash=squash)
        assert isinstance(pairs, Pairwise)
        assert torch.isfinite(pairs.f(torch.zeros(2))).all()


def test_inner_negatives_are_uniform_and_a_client_without_them_draws_positives() -> None:
    data, sampling = sites(), Positives(inner="negatives")
    inner = sampling.select(draw_of(data, steps=2000), Request(3, 5))["innerindex"]
    outer = Positives().select(draw_of(data, steps=2000), Request(3, 5))["index"]
    assert torch.equal(outer, sampling.select(draw_of(data, steps=2000), Request(3, 5))["index"])
    for client, own in enumerate(data.views(k)["labels"] for k in range(4)):
        allowed = (own <= 0).double() if client != 3 else torch.ones(len(own), **F64)
        counts = torch.bincount(inner[client].flatten(), minlength=len(own)) / 10000
        torch.testing.assert_close(counts.double(), allowed / allowed.sum(), atol=0.02, rtol=0)
        assert not bool((counts[allowed == 0] > 0).any())


def test_a_repr_says_what_is_not_default() -> None:
    assert repr(Positives()) == "Positives(label='labels', enrich=None, reweight=True)"
    assert repr(Positives(inner="negatives")) == "Positives(label='labels', enrich=None, reweight=True, inner='negatives')"


def test_wrong_arguments_are_refused_in_words() -> None:
    with pytest.raises(DataError, match='inner is "all" or "negatives"'):
        Positives(inner="some")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="inner sets of negatives hold no positives; got enrich=3"):
        Positives(enrich=3, inner="negatives")
    for lam in (0.0, -1.0, 0.01, float("inf"), float("nan")):
        with pytest.raises(ProblemError, match=r"at least 0\.03333, where exponentials stay in range"):
            partial_auc(linear, lam=lam)
    with pytest.raises(ProblemError, match="margin must be positive"):
        partial_auc(linear, margin=0.0)
    with pytest.raises(ProblemError, match="partial_auc has the forms Conditional and Pairwise"):
        partial_auc(linear, Minimax)
    with pytest.raises(ProblemError, match=r"write partial_auc\(Model\(module\)\)"):
        partial_auc(nn.Linear(3, 1))  # type: ignore[arg-type]
    fed: Any = Federation(partial_auc(linear, Pairwise), Data.from_parts({"a": rows(4, 0, 0)}))
    with pytest.raises(ProblemError, match="partial_auc compares positives"):
        fed.prepare(X)


def test_enriched_and_mixed_inner_sets_leave_their_positives_out() -> None:
    """With other samplers of positives the ratio is over the negatives among the inner samples."""
    data, model = sites(), Model(nn.Linear(3, 1).double())
    for sampling in (Positives(), Positives(enrich=2)):
        problem: Any = partial_auc(model, lam=0.5, sampling=sampling)
        b = sampling.fetch(data, {n: v[0, 0] for n, v in sampling.select(draw_of(data), Request(4, 9)).items()})
        assert b.inner is not None
        x = model.vector()
        down = b.inner.inputs[0][b.inner.labels[0] <= 0]
        weights = torch.sigmoid(model(x, b.inputs)[:, 0].detach()), torch.sigmoid(model(x, down)[:, 0].detach())
        assert float(problem.value(x, b)) == pytest.approx(twin(*(w.tolist() for w in weights), 1.0, 0.5), rel=1e-12)
    local: Any = conditional_as_compositional(problem)
    z = local.g(x, b)
    assert z.shape == (2,)
    assert torch.isfinite(local.f(z, b))
