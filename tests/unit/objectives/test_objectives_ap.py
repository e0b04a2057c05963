"""The average-precision surrogate: against double loops, its closed gradient, and on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from positive_rows import rows
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from rookery import FCSG, FCSGM, AccFCSGM, Batch, Data, Federation, Model
from rookery.data import Draw, Positives, Request, positive_counts
from rookery.errors import DataError, ProblemError
from rookery.federation.client import Setting
from rookery.models import mlp
from rookery.objectives import ap_surrogate, binary_scores

ENGINES = ["loop", "vectorised", "wire"]


def linear(x: Tensor, b: Batch) -> Tensor:
    return torch.tanh(b.inputs @ x)


def sites() -> Data:
    """Two ordinary clients, one without positives, one of positives only."""
    return Data.from_parts({"a": rows(12, 4, 0), "b": rows(9, 2, 1), "none": rows(9, 0, 2), "all": rows(5, 5, 3)})


def twin(scores: np.ndarray, labels: np.ndarray, margin: float, outer: Any, inner: Any, weight: np.ndarray, broken: bool = False) -> float:
    """The definition by double loop: minus the mean over positives of Σ 1[y=1]·w·ℓ / Σ w·ℓ."""
    ratios = []
    for i in outer:
        if labels[i] <= 0:
            continue
        up = down = 0.0
        for w, j in zip(weight, inner, strict=True):
            loss = max(margin - scores[i] + scores[j], 0.0) ** (1 if broken else 2)
            up += w * loss * (labels[j] > 0)
            down += w * loss
        ratios.append(up / down if down > 0 else 1.0)
    return -float(np.mean(ratios)) if ratios else 0.0


def draw_of(data: Data, steps: int = 1, clients: list[int] | None = None) -> Draw:
    where = np.arange(len(data.names)) if clients is None else np.asarray(clients)
    return Draw(data, where, Setting(ap_surrogate(linear), data, 3).keys(where, "train", 1), 0, np.arange(steps))


def batch_of(data: Data, sampling: Positives, client: int, request: Request, steps: int = 1, step: int = 0) -> Batch:
    if request == Request():
        return sampling.whole(data.views(client))
    selection = sampling.select(draw_of(data, steps), request)
    return sampling.fetch(data, {name: value[client, step] for name, value in selection.items()})


@pytest.mark.parametrize("margin", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("request_", [Request(), Request(5, 7)], ids=["all rows", "drawn"])
@pytest.mark.parametrize("sampling", [Positives(), Positives(enrich=3), Positives(enrich=3, reweight=False),
                                      Positives(enrich=6, among=True)])
def test_the_value_is_the_double_loop_at_every_client(sampling: Positives, request_: Request, margin: float) -> None:
    data, x = sites(), torch.tensor([0.4, -0.2, 0.5], dtype=torch.float64)
    problem = ap_surrogate(linear, margin, sampling)
    for client in range(4):
        b, own = batch_of(data, sampling, client, request_), data.views(client)
        scores, labels = torch.tanh(own["inputs"] @ x).numpy(), own["labels"].numpy()
        assert b.inner is not None
        weight = b.inner.importance[0].numpy() if "importance" in b.inner.fields else np.ones(b.inner.labels.shape[1])
        arguments = scores, labels, margin, b.index.numpy(), b.inner.index[0].numpy(), weight
        assert float(problem.value(x, b)) == pytest.approx(twin(*arguments), rel=1e-6)
        if client == 0:
            assert float(problem.value(x, b)) != pytest.approx(twin(*arguments, broken=True), rel=1e-3)


def test_all_rows_are_the_expectation_of_large_draws() -> None:
    """Drawn inner samples, enriched or not, estimate the client's own means; without reweighting they do not."""
    data, x = sites(), torch.tensor([0.4, -0.2, 0.5], dtype=torch.float64)
    full = {client: float(ap_surrogate(linear).value(x, Positives().whole(data.views(client)))) for client in (0, 1)}
    for sampling, agrees in [(Positives(), True), (Positives(enrich=1500), True), (Positives(enrich=1500, reweight=False), False)]:
        for client in (0, 1):
            value = float(ap_surrogate(linear, 1.0, sampling).value(x, batch_of(data, sampling, client, Request(3000, 3000))))
            assert (abs(value - full[client]) < 0.02) == agrees, (sampling, client)


def test_the_gradient_is_the_closed_one() -> None:
    """(u1·∂ℓ − u2·1[+]∂ℓ)/u2², with the derivative of ℓ written out."""
    data, x, margin = sites(), torch.tensor([0.4, -0.2, 0.5], dtype=torch.float64), 0.8
    b = batch_of(data, Positives(), 0, Request(4, 6))
    assert b.inner is not None
    a, z = b.inputs, b.inner.inputs[0]
    s, t = torch.tanh(a @ x), torch.tanh(z @ x)
    gap = (margin - s[:, None] + t[None]).clamp_min(0)
    slope = 2 * gap[..., None] * (-((1 - s**2)[:, None] * a)[:, None] + ((1 - t**2)[:, None] * z)[None])  # ∂ℓ, (b, m, d)
    one = (b.inner.labels > 0).double()
    u1, u2 = (gap**2 * one).mean(1)[:, None], (gap**2).mean(1)[:, None]
    closed = ((u1 * slope.mean(1) - u2 * (slope * one[0][None, :, None]).mean(1)) / u2**2).mean(0)
    torch.testing.assert_close(ap_surrogate(linear, margin).gradient(x, b), closed)
    assert float(closed.norm()) > 0.05


@pytest.mark.parametrize("request_", [Request(), Request(3, 4)], ids=["all rows", "drawn"])
@pytest.mark.parametrize("sampling", [Positives(), Positives(enrich=2), Positives(enrich=3, among=True)])
def test_one_class_clients_have_no_gradient(sampling: Positives, request_: Request) -> None:
    data, x, problem = sites(), torch.tensor([0.4, -0.2, 0.5], dtype=torch.float64), ap_surrogate(linear, 1.0, sampling)
    none, every = (batch_of(data, sampling, k, request_) for k in (2, 3))
    assert float(problem.value(x, none)) == 0
    assert torch.equal(problem.gradient(x, none), torch.zeros_like(x))
    assert float(problem.value(x, every)) == pytest.approx(-1)
    assert float(problem.gradient(x, every).norm()) < 1e-12


def test_no_row_within_the_margin_is_perfect_and_flat() -> None:
    labels = torch.tensor([1, 0])
    b = Positives().whole({"inputs": torch.tensor([[5.0], [-5.0]]), "labels": labels})
    only = Batch(b.fields, b.index, Batch({"inputs": torch.tensor([[[-5.0]]]), "labels": torch.tensor([[0]])}))
    problem = ap_surrogate(lambda x, b: b.inputs @ x, 0.5)
    assert float(problem.value(torch.ones(1), only)) == -1
    assert torch.equal(problem.gradient(torch.ones(1), only), torch.zeros(1))


# draws

def test_outer_samples_are_uniform_positives_and_inner_ones_uniform_rows() -> None:
    data, sampling = sites(), Positives()
    selection = sampling.select(draw_of(data, 2000), Request(3, 5))
    for client, own in enumerate(data.views(k)["labels"] for k in range(4)):
        expected = torch.ones(len(own)) / len(own) if client == 2 else own / own.sum()
        outer = torch.bincount(selection["index"][client].flatten(), minlength=len(own)) / 6000
        inner = torch.bincount(selection["innerindex"][client].flatten(), minlength=len(own)) / 10000
        torch.testing.assert_close(outer, expected.to(outer), atol=0.03, rtol=0)
        torch.testing.assert_close(inner, torch.full_like(inner, 1 / len(own)), atol=0.02, rtol=0)
        b = batch_of(data, sampling, client, Request(3, 5), 4, 2)
        assert b.inner is not None
        assert torch.equal(b.inputs, data.views(client)["inputs"][b.index])
        assert torch.equal(b.inner.inputs, data.views(client)["inputs"][b.inner.index])


def test_enriched_sets_have_so_many_positives_and_their_importance_has_mean_one() -> None:
    data, sampling = sites(), Positives(enrich=2)
    for client, positives in enumerate([2, 2, 0, 5]):
        b = batch_of(data, sampling, client, Request(3, 5), 4, 1)
        assert b.inner is not None
        assert int(b.inner.labels.sum()) == positives
        assert float(b.inner.importance.mean()) == pytest.approx(1)
        share = float(data.views(client)["labels"].double().mean())
        assert float((b.inner.importance[0, :2]).mean() * 2 / 5) == pytest.approx(share)


def test_counts_as_weights_count_every_positive_once() -> None:
    data, x = sites(), torch.tensor([0.4, -0.2, 0.5], dtype=torch.float64)
    assert positive_counts(data).tolist() == [4, 2, 0, 5]
    problem = ap_surrogate(linear)
    fed = Federation(problem, data, weights=positive_counts(data).tolist())
    state = FCSG(lr=1.0).init(fed, x)
    moved = x - FCSG(lr=1.0).round(fed, state).x
    each = [problem.gradient(x, Positives().whole(data.views(k))) for k in range(4)]
    torch.testing.assert_close(moved, (4 * each[0] + 2 * each[1] + 5 * each[3]) / 11)


@pytest.mark.parametrize("sizes", [(4, 6), (None, None)], ids=["drawn", "all rows"])
@pytest.mark.parametrize(("make", "sampling"), [(FCSG, Positives(enrich=5, among=True)), (FCSGM, Positives(enrich=2)),
                                                (AccFCSGM, Positives())])
def test_engines_agree(make: Any, sizes: Any, sampling: Positives) -> None:
    ends, ledgers = [], []
    for engine in ENGINES:
        fed = Federation(ap_surrogate(linear, 0.8, sampling), sites(), engine=engine, seed=5)
        algorithm = make(0.3, 3, *sizes)
        state = algorithm.init(fed, torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64))
        for _ in range(3):
            state = algorithm.round(fed, state)
        ends.append(state.x)
        ledgers.append(fed.ledger)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert torch.equal(ends[0], ends[2])
    assert ledgers[0] == ledgers[1] == ledgers[2]
    assert not torch.equal(ends[0], torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64))


def test_inner_rows_are_scored_once_for_all_outer_samples() -> None:
    seen = []

    def scores(x: Tensor, b: Batch) -> Tensor:
        seen.append(len(b.labels))
        return linear(x, b)

    ap_surrogate(scores).value(torch.zeros(3, dtype=torch.float64), batch_of(sites(), Positives(), 0, Request(4, 6)))
    assert seen == [10]
    among = Positives(enrich=4, among=True)
    ap_surrogate(scores, sampling=among).value(torch.zeros(3, dtype=torch.float64), batch_of(sites(), among, 0, Request(4, 6)))
    assert seen == [10, 6]


def test_outer_samples_among_the_inner_ones_are_compared_with_themselves() -> None:
    data, sampling, margin = sites(), Positives(enrich=3, reweight=False, among=True), 0.1
    b = batch_of(data, sampling, 0, Request(2, 8))
    assert b.inner is not None
    assert b.index.tolist() == b.inner.index[0, :2].tolist()
    assert bool((b.labels > 0).all())
    # scores that put every positive far above all other rows: u₂ is what the positive itself adds
    x = torch.tensor([50.0, 0.0, 0.0], dtype=torch.float64)
    problem = ap_surrogate(lambda x, b: (b.labels > 0) * x[0] + 0.0 * b.inputs[:, 0], margin, sampling)
    u = problem.g(x, b, b.inner).mean(1)
    assert bool((u[:, 1] >= margin**2 / 8 - 1e-12).all())
    fed = Federation(problem, data, engine="loop")
    algorithm = FCSG(0.1, 1, 2, 8)
    algorithm.round(fed, algorithm.init(fed, x))
    assert fed.ledger["train"].samples == 4 * 8  # outer samples are no further rows


# scores and errors

def test_two_outputs_are_their_difference_and_one_is_the_logit() -> None:
    r = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, 3, generator=r)
    one, two = Model(nn.Linear(3, 1)), Model(nn.Linear(3, 2))
    w, v = torch.randn(4, generator=r), torch.randn(8, generator=r)
    logit = inputs @ w[:3] + w[3]
    difference = inputs @ (v[3:6] - v[:3]) + v[7] - v[6]
    batch = Batch({"inputs": inputs})
    torch.testing.assert_close(binary_scores(one)(w, batch), 1 / (1 + torch.exp(-logit)))
    torch.testing.assert_close(binary_scores(two, squash=False)(v, batch), difference)
    with pytest.raises(ProblemError, match="one output, or two"):
        binary_scores(Model(nn.Linear(3, 3)))(torch.zeros(12), batch)


def test_wrong_requests_are_refused_in_words() -> None:
    data = sites()
    with pytest.raises(ProblemError, match="margin must be positive"):
        ap_surrogate(linear, 0.0)
    for request in (Request(3, None), Request(None, 3)):
        with pytest.raises(DataError, match="both sizes, outer and inner, or neither"):
            Positives().select(draw_of(data), request)
    with pytest.raises(DataError, match="between 1 and 4 positives"):
        Positives(enrich=5).select(draw_of(data), Request(2, 5))
    with pytest.raises(DataError, match="at most 2, or raise enrich"):
        Positives(enrich=2, among=True).select(draw_of(data), Request(3, 5))
    with pytest.raises(DataError, match="say how many it has"):
        Positives(among=True)
    named = Data.from_parts({"a": rows(4, 2, 0) | {"importance": torch.ones(4)}})
    with pytest.raises(DataError, match="rename the clients' field"):
        batch_of(named, Positives(enrich=1), 0, Request(2, 3))


def test_training_raises_average_precision() -> None:
    """Rare positives inside a cloud of negatives, where the score −‖z‖, about the best there is, has an AP of 0.30."""
    torch.manual_seed(0)
    r = torch.Generator().manual_seed(4)
    parts = {}
    for k in range(3):
        labels = (torch.arange(150) % 12 == 0).long()
        spread = torch.where(labels > 0, 0.5, 1.5)[:, None]
        parts[f"site-{k}"] = {"inputs": torch.randn(150, 2, generator=r) * spread, "labels": labels}
    parts["none"] = {"inputs": torch.randn(30, 2, generator=r), "labels": torch.zeros(30, dtype=torch.int64)}
    data = Data.from_parts(parts)
    model = Model(mlp(2, 16, 1))

    def precision(x: Tensor) -> float:
        return float(average_precision_score(data.fields["labels"], model.predict(x, data.fields["inputs"])[:, 0]))

    fed = Federation(ap_surrogate(model, sampling=Positives(enrich=8)), data, weights=positive_counts(data).tolist(), engine="loop")
    algorithm = FCSGM(lr=1.0, local_steps=4, outer=8, inner=32, beta=0.3)
    state = algorithm.init(fed, model.vector())
    before = precision(state.x)
    for _ in range(60):
        state = algorithm.round(fed, state)
    assert before < 0.1
    assert precision(state.x) > 0.27
