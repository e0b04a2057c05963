"""The AUC objective in its minimax, pairwise and plain forms: against the printed formula, finite differences and closed forms."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from draws import ENGINES, draw_of, one
from rare import F64, linear, prepared, rows
from torch import Tensor, nn

from rookery import Batch, Data, FedAvg, Federation, LocalSGDA, Minimization, Model
from rookery.data import Request, Stratified
from rookery.objectives import auc
from rookery.problems import Pairwise
from rookery.problems.autodiff import functional


def sites() -> Data:
    """Two ordinary clients and two of one class."""
    return Data.from_parts({"a": rows(12, 4, 0), "b": rows(9, 2, 1), "none": rows(7, 0, 2), "all": rows(5, 5, 3)})


def printed(s: Tensor, labels: Tensor, p: float, m: float, w1: float, w2: float, w3: float, weight: Tensor | None = None) -> float:
    """Equation (1), row by row, with the margin m in the place of 1."""
    total = 0.0
    for i, (h, b) in enumerate(zip(s.tolist(), labels.tolist(), strict=True)):
        value = -p * (1 - p) * w3**2
        if b > 0:
            value += (1 - p) * (h - w1) ** 2 - 2 * (m + w3) * (1 - p) * h
        else:
            value += p * (h - w2) ** 2 + 2 * (m + w3) * p * h
        total += value * (1.0 if weight is None else float(weight[i]))
    return total / len(s)


def five_point(fn: Any, x: Tensor, h: float = 1e-3) -> Tensor:
    found = torch.zeros_like(x)
    for i in range(len(x)):
        e = torch.zeros_like(x)
        e[i] = h
        found[i] = (8 * (fn(x + e) - fn(x - e)) - fn(x + 2 * e) + fn(x - 2 * e)) / (12 * h)
    return found


def pair_mean(s: Tensor, labels: Tensor, fn: Any) -> Tensor:
    return fn(s[labels > 0][:, None], s[labels <= 0][None]).mean()  # type: ignore[no-any-return]


# the minimax form

@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("p", "margin", "squash"), [(0.5, 1.0, True), (0.1, 1.0, False), (0.3, 0.4, True), (0.7, 2.5, False)])
def test_the_minimax_loss_is_the_printed_one(p: float, margin: float, squash: bool, weighted: bool) -> None:
    r = torch.Generator().manual_seed(7)
    fields = rows(15, 6, 4) | ({"importance": torch.rand(15, generator=r, **F64)} if weighted else {})
    problem = prepared(auc(linear, margin=margin, squash=squash), p)
    for _ in range(5):
        x, y = torch.randn(5, generator=r, **F64), torch.randn(1, generator=r, **F64)
        s = fields["inputs"] @ x[:3]
        s = torch.sigmoid(s) if squash else s
        expected = printed(s, fields["labels"], p, margin, float(x[3]), float(x[4]), float(y[0]), fields.get("importance"))
        assert float(problem.f(x, y, Batch(fields))) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert float(problem.f(x, y, Batch(fields))) != pytest.approx(expected + p * (1 - p) * float(y[0]) ** 2, rel=1e-6)


@pytest.mark.parametrize("squash", [True, False])
def test_its_gradients_are_finite_differences(squash: bool) -> None:
    r = torch.Generator().manual_seed(3)
    model = Model(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())
    b, problem = Batch(rows(10, 4, 5)), prepared(auc(model, margin=0.8, squash=squash), 0.4)
    x, y = torch.randn(model.size + 2, generator=r, **F64), torch.randn(1, generator=r, **F64)
    expected = five_point(lambda z: problem.f(z, y, b), x), five_point(lambda z: problem.f(x, z, b), y)
    for found in (problem.f_gradients(x, y, b), (problem.f_x(x, y, b), problem.f_y(x, y, b))):
        torch.testing.assert_close(found[0], expected[0], rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-8, atol=1e-9)
    with functional():
        torch.testing.assert_close(problem.f_x(x, y, b), expected[0], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("margin", [0.3, 1.0, 2.0])
def test_eliminating_three_numbers_leaves_the_square_loss_of_all_pairs(margin: float) -> None:
    """Over two clients of unequal sizes: w₁ and w₂ are the classes' mean scores, w₃ the second less the first."""
    data = Data.from_parts({"a": rows(12, 4, 0), "b": rows(7, 1, 1)})
    fed: Any = Federation(auc(linear, margin=margin), data, weights="samples")
    w = torch.tensor([0.4, -0.2, 0.5], **F64)
    problem = fed.prepare(torch.cat([w, torch.zeros(2, **F64)]))
    s, labels = torch.sigmoid(data.fields["inputs"] @ w), data.fields["labels"]
    p, up, down = 5 / 19, s[labels > 0].mean(), s[labels <= 0].mean()
    x, y = torch.cat([w, torch.stack([up, down])]), (down - up)[None]

    def value(x: Tensor, y: Tensor) -> Tensor:
        return (12 * problem.f(x, y, Batch(data.views(0))) + 7 * problem.f(x, y, Batch(data.views(1)))) / 19

    pairs = pair_mean(s, labels, lambda a, c: (margin - a + c).square())
    torch.testing.assert_close(value(x, y), p * (1 - p) * (pairs - margin**2), rtol=1e-12, atol=1e-12)
    assert float(five_point(lambda z: value(z, y), x)[3:].norm()) < 1e-9
    assert float(five_point(lambda z: value(x, z), y).norm()) < 1e-9
    # with y kept above −margin the mean scores are asked for the margin, and no more
    kept = torch.maximum(y, torch.tensor([-margin], **F64))
    spread = s[labels > 0].var(correction=0) + s[labels <= 0].var(correction=0)
    margin_loss = spread + (margin + down - up).clamp_min(0).square() - margin**2
    torch.testing.assert_close(value(x, kept), p * (1 - p) * margin_loss, rtol=1e-12, atol=1e-12)


def test_the_best_y_comes_from_four_sums() -> None:
    """At full batches, in a federation with weights of its own; a multiple of the sums says the same, and a class may be missing."""
    data, weights, x = sites(), [1.0, 3.0, 0.5, 0.2], torch.tensor([0.4, -0.2, 0.5, 0.1, 0.9], **F64)
    fed: Any = Federation(auc(linear), data, weights=weights)
    problem = fed.prepare(x)
    sums, best = problem.best_y
    mean = sum(w * sums(x, Batch(data.views(k))) for k, w in enumerate(weights)) / sum(weights)
    y = best(mean)
    assert y.shape == (1,)
    slope = sum(w * problem.f_y(x, y, Batch(data.views(k))) for k, w in enumerate(weights)) / sum(weights)
    assert float(slope.abs()) < 1e-12
    torch.testing.assert_close(best(9 * mean), y)
    none = rows(6, 0, 1)
    torch.testing.assert_close(best(sums(x, Batch(none))), torch.sigmoid(none["inputs"] @ x[:3]).mean().reshape(1))


def test_the_saddle_point_of_linear_scores_is_the_least_squares_solution_over_pairs() -> None:
    data = Data.from_parts({"a": rows(14, 5, 0), "b": rows(9, 2, 1)})
    fed: Any = Federation(auc(linear, margin=0.7, squash=False), data, weights="samples")
    problem = fed.prepare(torch.zeros(5, **F64))

    def operator(z: Tensor) -> Tensor:
        parts = [torch.cat(problem.f_gradients(z[:5], z[5:], Batch(data.views(k)))) for k in (0, 1)]
        return (14 * parts[0] + 9 * parts[1]) / 23

    zero = torch.zeros(6, **F64)
    matrix = torch.stack([operator(e) - operator(zero) for e in torch.eye(6, **F64)], 1)  # the gradients are affine
    solution = torch.linalg.solve(matrix, -operator(zero))
    a, labels = data.fields["inputs"], data.fields["labels"]
    gaps = (a[labels > 0][:, None] - a[labels <= 0][None]).reshape(-1, 3)
    least_squares = torch.linalg.lstsq(gaps, torch.full((len(gaps), 1), 0.7, **F64)).solution[:, 0]
    torch.testing.assert_close(solution[:3], least_squares, rtol=1e-9, atol=1e-10)


# pairs

def test_the_pairwise_form_is_the_hinge_over_all_pairs() -> None:
    data = sites()
    fed: Any = Federation(auc(linear, Pairwise, margin=0.4), data, weights="samples")
    x = torch.tensor([0.9, -0.2, 0.5], **F64)
    problem = fed.prepare(x)
    assert isinstance(problem, Pairwise)
    assert problem.share == pytest.approx(11 / 33)
    assert problem.label == "labels"
    s, labels = problem.s(x, Batch(data.fields)), data.fields["labels"]
    torch.testing.assert_close(s, torch.sigmoid(data.fields["inputs"] @ x))
    losses = problem.pair_losses(s[labels > 0], s[labels <= 0])
    by_hand = [[max(0.4 - float(a) + float(c), 0.0) ** 2 for c in s[labels <= 0]] for a in s[labels > 0]]
    torch.testing.assert_close(losses, torch.tensor(by_hand, **F64), rtol=1e-12, atol=1e-12)
    assert bool((losses == 0).any())
    torch.testing.assert_close(problem.f(losses), losses)


@pytest.mark.parametrize("margin", [0.4, 1.0])
def test_the_plain_form_is_the_mean_over_pairs_of_a_batch(margin: float) -> None:
    problem: Any = auc(linear, Minimization, margin=margin)
    x, fields = torch.tensor([0.9, -0.2, 0.5], **F64), rows(13, 4, 8)
    s = torch.sigmoid(fields["inputs"] @ x)
    expected = pair_mean(s, fields["labels"], lambda a, c: (margin - a + c).clamp_min(0).square())
    torch.testing.assert_close(problem.f(x, Batch(fields)), expected, rtol=1e-12, atol=1e-12)
    difference = five_point(lambda z: problem.f(z, Batch(fields)), x)
    torch.testing.assert_close(problem.gradient(x, Batch(fields)), difference, rtol=1e-6, atol=1e-8)
    drawn = Batch(fields | {"importance": torch.where(fields["labels"] > 0, 0.3, 1.7).double()})
    torch.testing.assert_close(problem.f(x, drawn), expected)  # the same within each class, and so in the mean over pairs
    for single in (rows(6, 0, 1), rows(6, 6, 1)):
        assert float(problem.f(x, Batch(single))) == 0
        assert torch.equal(problem.gradient(x, Batch(single)), torch.zeros(3, **F64))


# batches

def test_the_mean_over_all_batches_is_the_loss_of_all_rows() -> None:
    """Every stratified batch of a client with 2 positives and 3 negatives, all equally likely."""
    own = rows(5, 2, 6)
    data, sampling = Data.from_parts({"a": own}), Stratified("labels", share=0.5, importance=True)
    problem = prepared(auc(linear), 0.15)
    assert problem.sampling == sampling
    drawn = one(sampling, data, sampling.select(draw_of(data), Request(4)), 0, 0)
    assert drawn.importance.tolist() == pytest.approx([0.4 * 4 / 2] * 2 + [0.6 * 4 / 2] * 2)
    up, down = (own["labels"] > 0).nonzero()[:, 0].tolist(), (own["labels"] <= 0).nonzero()[:, 0].tolist()
    r = torch.Generator().manual_seed(1)
    x, y = torch.randn(5, generator=r, **F64), torch.randn(1, generator=r, **F64)
    batches = [torch.tensor(places) for places in product(up, up, down, down)]
    values = [problem.f(x, y, Batch({n: v[where] for n, v in own.items()} | {"importance": drawn.importance})) for where in batches]
    torch.testing.assert_close(torch.stack(values).mean(), problem.f(x, y, Batch(own)), rtol=1e-12, atol=1e-12)
    plain = [problem.f(x, y, Batch({n: v[where] for n, v in own.items()})) for where in batches]
    assert abs(float(torch.stack(plain).mean() - problem.f(x, y, Batch(own)))) > 1e-2


@pytest.mark.parametrize("batch", [4, 1, None])
def test_engines_agree_also_where_a_client_has_one_class(batch: int | None) -> None:
    ends = []
    for engine in ENGINES:
        fed: Any = Federation(auc(linear, margin=0.8), sites(), engine=engine, seed=5)
        x, y = torch.tensor([0.1, 0.2, -0.3, 0.0, 0.0], **F64), torch.zeros(1, **F64)
        fed.prepare(x)
        algorithm = LocalSGDA(lr=0.3, inner_lr=0.2, local_steps=3, batch=batch)
        state = algorithm.init(fed, x, y)
        for _ in range(3):
            state = algorithm.round(fed, state)
        ends.append(torch.cat([state.x, state.y]))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert torch.equal(ends[0], ends[2])
    assert float((ends[0] - torch.cat([x, y])).abs().min()) > 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_the_share_is_the_federation_s_with_its_weights(engine: str) -> None:
    for weights, share in (("equal", (4 / 12 + 2 / 9 + 0 + 1) / 4), ("samples", 11 / 33), ([1.0, 3.0, 0.0, 0.0], (4 / 12 + 3 * 2 / 9) / 4)):
        fed: Any = Federation(auc(linear), sites(), weights=weights, engine=engine)  # type: ignore[arg-type]
        x, y = torch.tensor([0.1, 0.2, -0.3, 0.4, 0.2], **F64), torch.tensor([0.3], **F64)
        fed.prepare(x)
        b = Batch(sites().views(0))
        s = torch.sigmoid(b.inputs @ x[:3])
        assert float(fed.problem.f(x, y, b)) == pytest.approx(printed(s, b.labels, share, 1.0, 0.4, 0.2, 0.3), rel=1e-12)


def test_clients_of_one_class_train_in_the_plain_form() -> None:
    ends = []
    for engine in ENGINES:
        fed: Any = Federation(auc(linear, Minimization), sites(), engine=engine, seed=2)
        state = FedAvg(lr=0.5, local_steps=2, batch=5).init(fed, torch.zeros(3, **F64))
        for _ in range(3):
            state = FedAvg(lr=0.5, local_steps=2, batch=5).round(fed, state)
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert torch.equal(ends[0], ends[2])
