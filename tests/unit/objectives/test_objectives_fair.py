"""Fairness: soft gaps against loops over rows, hard gaps by hand, clients without groups or positives, every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import Batch, Data, FedDRO, Federation, Model
from rookery.errors import ProblemError
from rookery.objectives import binary_scores, fair, fairness_gap, group_rates

ENGINES = ["loop", "vectorised", "wire"]
KINDS = ["equality of opportunity", "equalised odds", "demographic parity"]
X = torch.tensor([0.8, -0.4], dtype=torch.float64)


def score(x: Tensor, b: Batch) -> Tensor:
    return torch.sigmoid(b.inputs @ x)


def loss(x: Tensor, b: Batch) -> Tensor:
    return F.binary_cross_entropy_with_logits(b.inputs @ x, b.labels.to(x.dtype), reduction="none")


def sites() -> Data:
    """b has no group 2, c no positives, d one row of no group at all."""
    r = torch.Generator().manual_seed(0)

    def rows(groups: list[int], labels: list[int]) -> dict[str, Tensor]:
        return {"inputs": torch.randn(len(groups), 2, generator=r, dtype=torch.float64), "group": torch.tensor(groups),
                "labels": torch.tensor(labels)}

    return Data.from_parts({"a": rows([0, 1, 2, 2, 0, 1, 0], [1, 1, 1, 0, 0, 0, 1]), "b": rows([0, 1, 1, 0], [1, 1, 0, 0]),
                            "c": rows([1, 2], [0, 0]), "d": rows([0, -1], [1, 1])})


def twin(data: Data, x: np.ndarray, kind: str, weights: Any, broken: bool = False) -> list[float]:
    """Gaps row by row: a row of client k has the weight w_k/n_k."""
    conditions = {"equality of opportunity": [True], "equalised odds": [True, False], "demographic parity": [None]}[kind]
    gaps = []
    for condition in conditions:
        rates = []
        for j in (None, 0, 1, 2):
            up = down = 0.0
            for k, w in enumerate(weights):
                own = {name: column.numpy() for name, column in data.views(k).items()}
                for z, group, label in zip(own["inputs"], own["group"], own["labels"], strict=True):
                    if (j is None or group == j) and (broken or condition is None or (label > 0) == condition):
                        up += w / len(own["group"]) / (1 + np.exp(-z @ x))
                        down += w / len(own["group"])
            rates.append(up / down)
        gaps += [rates[0] - rate for rate in rates[1:]]
    return gaps


def prepared(kind: Any, engine: str = "loop", weights: Any = "samples", **options: Any) -> Federation:
    fed = Federation(fair(loss, score, 3, kind, **options), sites(), weights=weights, engine=engine)
    fed.prepare(X)
    return fed


def gaps(fed: Federation, x: Tensor) -> Tensor:
    p: Any = fed.problem
    return sum(w * p.g(x, Batch(fed.data.views(k))) for k, w in enumerate(fed.weights / fed.weights.sum()))  # type: ignore[return-value]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_gaps_are_those_of_all_rows_under_the_federation_s_weights(kind: str, engine: str) -> None:
    for weights, numbers in (("samples", [7, 4, 2, 2]), ("equal", [1, 1, 1, 1])):
        fed = prepared(kind, engine, weights)
        assert gaps(fed, X).tolist() == pytest.approx(twin(fed.data, X.numpy(), kind, numbers))
        if kind != "demographic parity":
            assert gaps(fed, X).tolist() != pytest.approx(twin(fed.data, X.numpy(), kind, numbers, broken=True), rel=1e-2)


def test_the_penalty_is_the_hinge_beyond_the_slack() -> None:
    p = fair(loss, score, 3, rho=6.0, slack=0.1)
    assert float(p.f(torch.tensor([0.05, -0.3, 0.2]))) == pytest.approx(3 * (0.2**2 + 0.1**2))
    assert torch.equal(p.f_gradient(torch.tensor([0.05, -0.1, 0.0])), torch.zeros(3))
    b = Batch(sites().views(0))
    assert float(p.h_value(X, b)) == pytest.approx(float(loss(X, b).mean()))


def test_clients_without_a_group_or_positives_add_nothing_to_it() -> None:
    fed = prepared("equality of opportunity")
    p: Any = fed.problem
    assert torch.equal(p.g(X, Batch(fed.data.views(2))), torch.zeros(3, dtype=torch.float64))
    b, own = p.g(X, Batch(fed.data.views(1))), fed.data.views(1)
    positives = float((score(X, Batch(own)) * (own["labels"] > 0)).mean()) / (8 / 15)  # 8 positives of 15 rows
    assert float(b[2]) == pytest.approx(positives)


def test_small_batches_estimate_the_gaps_without_bias() -> None:
    p: Any = prepared("equalised odds").problem
    own = sites().views(0)
    single = [p.g(X, Batch({name: column[i : i + 1] for name, column in own.items()})) for i in range(7)]
    torch.testing.assert_close(torch.stack(single).mean(0), p.g(X, Batch(own)))


@pytest.mark.parametrize("batch", [None, 3])
def test_feddro_closes_the_gap_on_every_engine(batch: int | None) -> None:
    ends = []
    for engine in ENGINES:
        fed = prepared("equality of opportunity", engine, rho=50.0)
        algorithm = FedDRO(lr=0.05, beta=0.5, local_steps=2, batch=batch)
        state = algorithm.init(fed, X)
        before = float(gaps(fed, X).abs().max())
        for _ in range(15):
            state = algorithm.round(fed, state)
        if batch is None:
            assert float(gaps(fed, state.x).abs().max()) < 0.3 * before
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-8, atol=1e-8)
    assert torch.equal(ends[0], ends[2])


def test_a_model_gives_its_own_scores() -> None:
    torch.manual_seed(0)
    model = Model(nn.Linear(2, 2).double())
    own, by_hand = (Federation(fair(loss_of(model), s, 3), sites()) for s in (model, binary_scores(model)))
    x = model.vector()
    batch = Batch(own.data.views(0))
    torch.testing.assert_close(own.prepare(x).g(x, batch), by_hand.prepare(x).g(x, batch))  # type: ignore[attr-defined]
    assert own.problem.model is model


def loss_of(model: Model) -> Any:
    return lambda x, b: F.cross_entropy(model(x, b.inputs), b.labels)


# hard gaps

def test_hard_rates_by_hand() -> None:
    predicted, labels, groups = [1, 1, 0, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 1, 0, 1], [0, 0, 1, 1, 0, 1, 2, 2]
    assert group_rates(predicted, labels, groups).tolist() == [[3 / 5, 1.0, 1 / 2, 0.0]]
    assert group_rates(predicted, labels, groups, "equalised odds").tolist()[1] == [1 / 3, 0.0, 1.0, 0.0]
    assert group_rates(predicted, labels, groups, "demographic parity").tolist() == [[4 / 8, 2 / 3, 2 / 3, 0.0]]
    assert fairness_gap(predicted, labels, groups) == pytest.approx(0.6)
    assert fairness_gap(predicted, labels, groups, "equalised odds") == pytest.approx(2 / 3)
    assert fairness_gap(predicted, labels, groups, "demographic parity") == pytest.approx(0.5)
    assert fairness_gap(torch.tensor(predicted), torch.tensor(labels) * 2 - 1, torch.tensor(groups)) == pytest.approx(0.6)


def test_a_group_without_positives_has_no_rate() -> None:
    assert np.isnan(group_rates([1, 0, 1], [1, 1, 0], [0, 0, 1])[0, 2])
    assert fairness_gap([1, 0, 1], [1, 1, 0], [0, 0, 1]) == 0
    with pytest.raises(ProblemError, match="no group has rows"):
        fairness_gap([1, 0], [0, 0], [0, 1])


def test_errors_say_what_to_write() -> None:
    with pytest.raises(ProblemError, match="kind is one of 'equality of opportunity'"):
        fair(loss, score, 3, "parity")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="prepare"):
        fair(loss, score, 3).g(X, Batch(sites().views(0)))
    for bad in ({"rho": -1.0}, {"slack": -1.0}):
        with pytest.raises(ProblemError):
            fair(loss, score, 3, **bad)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="at least 2"):
        fair(loss, score, 1)
    fed = Federation(fair(loss, score, 4), sites())
    with pytest.raises(ProblemError, match="number 3 has none"):
        fed.prepare(X)
