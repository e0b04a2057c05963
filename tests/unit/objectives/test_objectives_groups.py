"""Group DRO and balanced cross-entropy: shares and counts of the whole federation, clients that lack a group, every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rookery import Batch, Data, FedAvg, FedDRO, Federation, FedNest, Model, as_bilevel
from rookery.errors import ProblemError
from rookery.models import federated_norm
from rookery.objectives import balanced_cross_entropy, group_dro

ENGINES = ["loop", "vectorised", "wire"]
X = torch.tensor([0.5, -0.3], dtype=torch.float64)


def losses(x: Tensor, b: Batch) -> Tensor:
    return (b.inputs @ x - b.target).square()


def sites() -> Data:
    """Client b lacks group 2, client c has group 1 only."""
    r = torch.Generator().manual_seed(0)

    def rows(groups: list[int]) -> dict[str, Tensor]:
        n = len(groups)
        return {"inputs": torch.randn(n, 2, generator=r, dtype=torch.float64), "target": torch.randn(n, generator=r, dtype=torch.float64),
                "group": torch.tensor(groups), "labels": torch.tensor(groups) % 2}

    return Data.from_parts({"a": rows([0, 1, 2, 2, 0, 1, 0]), "b": rows([0, 1, 1, 0]), "c": rows([1, 1])})


def twin(data: Data, x: np.ndarray, lam: float, weights: list[float]) -> float:
    """λ·log mean_j exp(L_j/λ), L_j the weighted mean loss of the rows of group j, a row of client k having the weight w_k/n_k."""
    up, down = np.zeros(3), np.zeros(3)
    for k, w in enumerate(weights):
        own = {name: field.numpy() for name, field in data.views(k).items()}
        for z, t, j in zip(own["inputs"], own["target"], own["group"], strict=True):
            up[j] += w / len(own["group"]) * (z @ x - t) ** 2
            down[j] += w / len(own["group"])
    return float(lam * np.log(np.exp(up / down / lam).mean()))


def value(fed: Federation, x: Tensor) -> float:
    p: Any = fed.problem
    weights = fed.weights / fed.weights.sum()
    z = sum(w * p.g(x, Batch(fed.data.views(k))) for k, w in enumerate(weights))
    return float(p.f(z))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("weights", ["equal", "samples", [3.0, 1.0, 2.0]])
def test_the_value_is_that_of_the_groups_means_under_the_federation_s_weights(weights: Any, engine: str) -> None:
    fed = Federation(group_dro(losses, 3, 0.7, "group"), sites(), weights=weights, engine=engine)
    fed.prepare(X)
    numbers = {"equal": [1.0, 1.0, 1.0], "samples": [7.0, 4.0, 2.0]}.get(str(weights), weights)
    assert value(fed, X) == pytest.approx(twin(fed.data, X.numpy(), 0.7, numbers))
    assert value(fed, X) != pytest.approx(twin(fed.data, X.numpy(), 0.7, [1.0, 3.0, 3.0]), rel=1e-3)
    assert fed.ledger["setup"].floats_up == 3 * 4


def test_it_lies_between_the_mean_and_the_largest_and_tends_to_them() -> None:
    z = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
    values = [float(group_dro(losses, 3, lam).f(z)) for lam in (1e-3, 1.0, 1e4)]
    assert values[0] == pytest.approx(3.0, abs=2e-3)
    assert values[2] == pytest.approx(1.4, abs=1e-3)
    assert 1.4 < values[1] < 3.0


def test_small_batches_estimate_every_group_without_bias() -> None:
    """All batches of one row each, equally likely, have the full batch as their mean, at a client that lacks a group too."""
    fed = Federation(group_dro(losses, 3, 1.0, "group"), sites())
    p: Any = fed.prepare(X)
    for k in range(3):
        own = fed.data.views(k)
        single = [p.g(X, Batch({name: field[i : i + 1] for name, field in own.items()})) for i in range(len(own["group"]))]
        torch.testing.assert_close(torch.stack(single).mean(0), p.g(X, Batch(own)))
    assert float(p.g(X, Batch(fed.data.views(2)))[0]) == 0


@pytest.mark.parametrize("batch", [None, 3])
def test_feddro_on_every_engine(batch: int | None) -> None:
    ends = []
    for engine in ENGINES:
        fed = Federation(group_dro(losses, 3, 0.5, "group"), sites(), engine=engine, weights="samples")
        fed.prepare(X)
        algorithm = FedDRO(lr=0.02, beta=0.5, local_steps=2, batch=batch)
        state = algorithm.init(fed, X)
        before = value(fed, state.x)
        for _ in range(20):
            state = algorithm.round(fed, state)
        assert value(fed, state.x) < before
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert torch.equal(ends[0], ends[2])


def test_the_bilevel_form_agrees_on_the_same_shares() -> None:
    plain, embedded = (Federation(p, sites()) for p in (group_dro(losses, 3, 0.5, "group"), as_bilevel(group_dro(losses, 3, 0.5, "group"))))
    own: Any = plain.prepare(X)
    other: Any = embedded.prepare(X)
    batch, y = Batch(plain.data.views(0)), torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(-other.g_y(X, y, batch), own.g(X, batch))
    FedNest(lr=0.1, inner_lr=0.5).init(embedded, X, y)


def test_group_errors_say_what_to_write() -> None:
    fed = Federation(group_dro(losses, 4, 1.0, "group"), sites())
    with pytest.raises(ProblemError, match="number 3 has none"):
        fed.prepare(X)
    fed = Federation(group_dro(losses, 2, 1.0, "group"), sites())
    with pytest.raises(ProblemError, match=r"from 0 to 1; a share of 0\.0952"):
        fed.prepare(X)
    with pytest.raises(ProblemError, match="prepare"):
        group_dro(losses, 3, 1.0, "group").g(X, Batch(fed.data.views(0)))
    for bad in ({"groups": 3, "lam": 0.0}, {"groups": 0}):
        with pytest.raises(ProblemError):
            group_dro(losses, **bad)  # type: ignore[arg-type]


# balanced cross-entropy

def classes() -> Data:
    r = torch.Generator().manual_seed(1)
    return Data.from_parts({name: {"inputs": torch.randn(len(own), 4, generator=r), "labels": torch.tensor(own)} for name, own in
                            {"a": [0, 1, 2, 0, 0, 0], "b": [0, 0, 1, 0], "c": [2, 0]}.items()})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", [3, None])
def test_class_weights_are_n_over_c_times_n_c(engine: str, number: int | None) -> None:
    model = Model(nn.Linear(4, 3))
    fed = Federation(balanced_cross_entropy(model, number), classes(), weights="samples", engine=engine)
    x = torch.linspace(-1, 1, model.size)
    p: Any = fed.prepare(x)
    assert fed.setting.constants is not None
    assert fed.setting.constants.tolist() == [8, 2, 2]
    weight = np.asarray([12 / 24, 12 / 6, 12 / 6])
    for k in range(3):
        own = fed.data.views(k)
        w, bias = x[:12].reshape(3, 4).numpy(), x[12:].numpy()
        logits = own["inputs"].numpy() @ w.T + bias
        ell = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(logits)), own["labels"].numpy()]
        assert float(p.f(x, Batch(own))) == pytest.approx(float((weight[own["labels"].numpy()] * ell).mean()), rel=1e-5)
    state = FedAvg(lr=0.1, local_steps=2, batch=2).init(fed, x)
    assert torch.isfinite(FedAvg(lr=0.1, local_steps=2, batch=2).round(fed, state).x).all()


def test_the_classes_are_read_from_a_net_with_batch_norm_too() -> None:
    torch.manual_seed(0)
    model = Model(federated_norm(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))))
    fed = Federation(balanced_cross_entropy(model), classes())
    fed.prepare(model.vector())
    assert fed.setting.constants is not None
    assert fed.setting.constants.tolist() == [8, 2, 2]
    with pytest.raises(ProblemError, match="number 3 has none"):
        Federation(balanced_cross_entropy(model, 4), classes()).prepare(model.vector())
    with pytest.raises(ProblemError, match="prepare"):
        balanced_cross_entropy(model).f(model.vector(), Batch(fed.data.views(0)))
