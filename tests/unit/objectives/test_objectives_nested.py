"""The bilevel objectives against loops, finite differences of the re-solved inner problem, and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rookery import Batch, Data, Federation, FedNest, Model, Program, RookeryError
from rookery.data import Shuffled, Stratified
from rookery.errors import DataError, ProblemError
from rookery.models import mlp
from rookery.objectives import data_reweighting, hyper_parameters, hyper_representation, loss_tuning

CLASSES, INPUTS = 3, 4
SIZES = {"north": (6, 5), "south": (8, 4), "east": (5, 7)}  # training and validation rows


def rows(seed: int = 0) -> Data:
    r = np.random.default_rng(seed)
    parts = {}
    for name, (train, held) in SIZES.items():
        n = train + held
        inputs = r.standard_normal((n, INPUTS))
        labels = np.argmax(inputs[:, :CLASSES] + 0.8 * r.standard_normal((n, CLASSES)), 1)
        labels[:CLASSES] = range(CLASSES)
        labels[train : train + CLASSES] = range(CLASSES)
        parts[name] = {"inputs": inputs, "labels": labels, "validation": np.arange(n) >= train, "group": r.integers(0, 5, n),
                       "targets": inputs @ r.standard_normal(INPUTS) + 0.3 * r.standard_normal(n)}
    return Data.from_parts(parts)


def squares(y: Tensor, b: Batch) -> Tensor:
    return (b.inputs @ y - b.targets).square()


def linear() -> Model:
    return Model(mlp(INPUTS, CLASSES).double())


def square(y: Tensor, b: Batch) -> Tensor:
    return 0.5 * (b.inputs @ y - b.targets).square()


def tuned(data: Data) -> tuple[Federation, Tensor, Tensor]:
    model = linear()
    fed = Federation(loss_tuning(model, CLASSES, ridge=0.2), data)
    x = torch.tensor([0.3, -0.2, 0.5, 0.1, 0.0, -0.4], dtype=torch.float64)
    fed.prepare(x)
    return fed, x, torch.zeros(model.size, dtype=torch.float64)


def represented(data: Data) -> tuple[Federation, Tensor, Tensor]:
    torch.manual_seed(0)
    features = Model(nn.Sequential(nn.Linear(INPUTS, 2), nn.Tanh()).double())
    return Federation(hyper_representation(features, 2, CLASSES, ridge=0.2), data), features.vector(), torch.zeros(9, dtype=torch.float64)


def regularised(data: Data) -> tuple[Federation, Tensor, Tensor]:
    return (Federation(hyper_parameters(square), data), torch.tensor([-1.0, 0.5, 0.0, -0.3], dtype=torch.float64),
            torch.zeros(INPUTS, dtype=torch.float64))


def reweighted(data: Data) -> tuple[Federation, Tensor, Tensor]:
    return (Federation(data_reweighting(square, 0.1), data), torch.tensor([0.4, -0.6, 0.0, 1.0, -1.0], dtype=torch.float64),
            torch.zeros(INPUTS, dtype=torch.float64))


ALL: dict[str, Callable[[Data], tuple[Federation, Tensor, Tensor]]] = {
    "loss_tuning": tuned, "hyper_representation": represented, "hyper_parameters": regularised, "data_reweighting": reweighted}


def whole(fed: Federation, name: str, x: Tensor, y: Tensor) -> Tensor:
    """mean_k of f or g over all rows of each client, differentiable."""
    return torch.stack([getattr(fed.problem, name)(x, y, Batch(fed.data.views(k))) for k in range(fed.population)]).mean()


def inner_solution(fed: Federation, x: Tensor, y: Tensor, steps: int = 8) -> Tensor:
    """Newton's method on the whole g, with the Hessian formed: small problems, and independent of what is tested."""
    for _ in range(steps):
        gradient = torch.autograd.functional.jacobian(lambda z: whole(fed, "g", x, z), y)
        y = y - torch.linalg.solve(torch.autograd.functional.hessian(lambda z: whole(fed, "g", x, z), y), gradient)
    return y


@pytest.mark.parametrize("name", ALL)
def test_the_hypergradient_is_the_finite_difference_of_the_solved_problem(name: str) -> None:
    """∂x f − ∇²xy g·p from FedNest's oracles, p by conjugate gradients, against F(x ± ε) with the inner problem solved again."""
    fed, x, start = ALL[name](rows())
    y = inner_solution(fed, x, start)
    algorithm = FedNest(0.1, terms=60, inverse_solver="cg")
    X, Y = fed.broadcast(x, y)
    p = algorithm.fed_ihgp(fed, X, Y)
    assert p is not None
    found = fed.mean(fed.map(algorithm.indirect, X, Y, fed.broadcast(p)))
    expected = []
    for j in range(len(x)):
        move = torch.zeros_like(x)
        move[j] = 1e-4
        ends = [float(whole(fed, "f", x + s * move, inner_solution(fed, x + s * move, y, 3))) for s in (1, -1)]
        expected.append((ends[0] - ends[1]) / 2e-4)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-7)
    assert found.abs().max() > 1e-3


@pytest.mark.parametrize("name", ALL)
def test_the_inner_problem_has_one_solution(name: str) -> None:
    fed, x, start = ALL[name](rows())
    hessian = torch.autograd.functional.hessian(lambda z: whole(fed, "g", x, z), start + 0.3)
    assert torch.linalg.eigvalsh(hessian)[0] > 0.01


def test_loss_tuning_is_the_formula_row_by_row() -> None:
    data = rows()
    fed, x, y = tuned(data)
    y = torch.linspace(-1, 1, len(y), dtype=torch.float64)
    W, offset = y[: CLASSES * INPUTS].view(CLASSES, INPUTS).numpy(), y[CLASSES * INPUTS :].numpy()
    held = data.fields["validation"].numpy().astype(bool)
    labels = data.fields["labels"].numpy()
    each = [labels[a : a + n][held[a : a + n]] for a, n in zip(data.offsets, data.sizes, strict=True)]
    share = np.array([np.mean([np.mean(of == c) for of in each]) for c in range(CLASSES)])
    scale, shift = 1 / (1 + np.exp(-x[:CLASSES].numpy())), x[CLASSES:].numpy()
    for k in range(3):
        fields = {name: field.numpy() for name, field in data.views(k).items()}
        outer, inner = [], []
        for a, t, v in zip(fields["inputs"], fields["labels"], fields["validation"], strict=True):
            s = W @ a + offset
            if v:
                outer.append((np.log(np.exp(s).sum()) - s[t]) / (CLASSES * share[t]))
            else:
                z = scale * s + shift
                inner.append(np.log(np.exp(z).sum()) - z[t])
        batch = Batch(data.views(k))
        assert float(fed.problem.f(x, y, batch)) == pytest.approx(np.mean(outer))  # type: ignore[attr-defined]
        assert float(fed.problem.g(x, y, batch)) == pytest.approx(np.mean(inner) + 0.1 * float(y.square().sum()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("weights", ["equal", "samples", (1.0, 5.0, 2.0)])
def test_class_weights_give_each_class_the_same_part_of_the_federations_mean(weights: Any) -> None:
    data = rows()
    fed = Federation(loss_tuning(linear(), CLASSES), data, weights=weights)
    x, y = torch.zeros(2 * CLASSES, dtype=torch.float64), torch.zeros(CLASSES * (INPUTS + 1), dtype=torch.float64)
    fed.prepare(x)
    assert fed.ledger["setup"].exchanges == 1
    assert fed.ledger["setup"].floats_up == 3 * CLASSES

    def weight(c: int) -> float:
        """From a single row, at scores of 0, where cross-entropy is log 3."""
        row = {"inputs": torch.zeros(1, INPUTS, dtype=torch.float64), "labels": torch.tensor([c]), "validation": torch.ones(1)}
        return float(fed.problem.f(x, y, Batch(row))) / np.log(CLASSES)  # type: ignore[attr-defined]

    part = np.zeros(CLASSES)
    for k, share in enumerate(fed.weights / fed.weights.sum()):
        labels = data.views(k)["labels"][data.views(k)["validation"] > 0]
        part += share * np.array([weight(c) * float((labels == c).double().mean()) for c in range(CLASSES)])
    np.testing.assert_allclose(part, 1 / CLASSES)


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize("batch", [None, 4])
def test_a_client_without_one_kind_of_rows_is_refused(engine: str, batch: int | None) -> None:
    data = rows()
    data.views(1)["validation"][:] = 0
    fed = Federation(hyper_parameters(squares, sampling=Stratified("validation", 2)), data, engine=engine)
    start = torch.zeros(INPUTS, dtype=torch.float64)
    algorithm = FedNest(0.1, batch=batch)
    with pytest.raises(RookeryError, match=r"0 validation and .* training rows, and every client of a bilevel objective needs both"):
        algorithm.round(fed, algorithm.init(fed, start, start))


def test_batches_without_the_kinds_apart_are_refused() -> None:
    start = torch.zeros(INPUTS, dtype=torch.float64)
    fed = Federation(hyper_parameters(squares), rows())
    with pytest.raises(DataError, match="a random number of validation rows"):
        FedNest(0.1, batch=4).round(fed, FedNest(0.1, batch=4).init(fed, start, start))
    with pytest.raises(ProblemError, match=r'write sampling=Stratified\("validation", n\)'):
        hyper_parameters(lambda y, b: b.targets, sampling=Shuffled())


@pytest.mark.parametrize(("losses", "what"), [
    (lambda y, b: squares(y, b)[:, None], r"got shape \(.*, 1\)"), (lambda y, b: (b.inputs @ y).mean(), r"got shape \(\)")])
def test_losses_of_another_shape_are_refused(losses: Any, what: str) -> None:
    start = torch.zeros(INPUTS, dtype=torch.float64)
    fed = Federation(hyper_parameters(losses), rows())
    with pytest.raises(ProblemError, match=what):
        FedNest(0.1).round(fed, FedNest(0.1).init(fed, start, start))


@pytest.mark.parametrize(("batch", "marked"), [(None, 1), (4, 1), (4, 2)])
def test_no_loss_is_a_mean_of_fewer_rows_than_min_batch(batch: int | None, marked: int) -> None:
    """Two rows of each kind in a batch; a client with one validation row has it twice, which counts once."""
    data, least = rows(), marked + 1
    data.views(0)["validation"][:] = (torch.arange(int(data.sizes[0])) < marked).to(data.fields["validation"].dtype)
    problem = hyper_parameters(squares, sampling=Stratified("validation", 2))
    start = torch.zeros(INPUTS, dtype=torch.float64)
    algorithm = FedNest(0.1, batch=batch)
    for engine in ("loop", "vectorised"):
        fed = Federation(problem, data, min_batch=least, engine=engine)
        with pytest.raises(DataError, match=f"a batch of {least - 1} was drawn"):
            algorithm.round(fed, algorithm.init(fed, start, start))
        algorithm.round(fed := Federation(problem, data, min_batch=least - 1, engine=engine), algorithm.init(fed, start, start))


def test_kinds_are_told_by_sign_and_groups_of_validation_rows_are_not_read() -> None:
    data = rows()
    other = Data(dict(data.fields), data.names, data.sizes)
    other.fields["validation"] = 2 * data.fields["validation"].long()
    other.fields["group"] = torch.where(data.fields["validation"] > 0, -1, 0)
    data.fields["group"] = torch.zeros(len(other.fields["group"]), dtype=torch.int64)
    problem = data_reweighting(squares)
    start = torch.zeros(INPUTS, dtype=torch.float64)
    feds = [Federation(problem, d, engine="loop") for d in (data, other)]
    ends = [FedNest(0.1).round(fed, FedNest(0.1).init(fed, start[:1], start)) for fed in feds]
    assert torch.equal(ends[0].y, ends[1].y)
    assert torch.equal(ends[0].x, ends[1].x)


def test_a_class_without_validation_rows_is_refused() -> None:
    data = rows()
    data.fields["labels"][data.fields["validation"]] = 0
    fed = Federation(loss_tuning(linear(), CLASSES), data)
    with pytest.raises(ProblemError, match="class 1 has no validation rows at any client"):
        fed.prepare(torch.zeros(6, dtype=torch.float64))


@dataclass(frozen=True)
class Ask(Program):
    """Mean gradients of the two losses on stratified batches."""

    def both(self, c: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return c.f_y(x, y, c.draw(6)), c.g_y(x, y, c.draw(6))


def test_stratified_batches_leave_both_gradients_unbiased() -> None:
    data = rows()
    fed = Federation(hyper_parameters(square, sampling=Stratified("validation", 2)), data, engine="vectorised")
    x, y = torch.zeros(INPUTS, dtype=torch.float64), torch.linspace(-1, 1, INPUTS, dtype=torch.float64)
    X, Y = fed.broadcast(x, y)
    drawn = [fed.mean(*fed.map(Ask().both, X, Y)) for _ in range(400)]
    for j, name in enumerate("fg"):
        exact = torch.autograd.functional.jacobian(lambda z, name=name: whole(fed, name, x, z), y)
        found = torch.stack([pair[j] for pair in drawn])
        error = found.std(0) / np.sqrt(len(drawn))
        assert ((found.mean(0) - exact).abs() < 4 * error).all()
        assert error.max() > 1e-3


def test_noisy_rows_lose_their_weight() -> None:
    """Two groups of training rows at every client, one with targets of the wrong sign: its weight falls, the other's does not."""
    r = np.random.default_rng(1)
    truth, parts = r.standard_normal(INPUTS), {}
    for name in ("a", "b", "c"):
        inputs = r.standard_normal((30, INPUTS))
        group, held = np.repeat([0, 1, 0], 10), np.repeat([0, 0, 1], 10)
        targets = inputs @ truth * np.where(group == 1, -1.0, 1.0)
        parts[name] = {"inputs": inputs, "targets": targets, "group": group, "validation": held}
    fed = Federation(data_reweighting(square, 0.01), Data.from_parts(parts))
    algorithm = FedNest(1.0, inner_lr=0.4, inner_rounds=5, local_steps=2, terms=4, inverse_solver="cg")
    state = algorithm.init(fed, torch.zeros(2, dtype=torch.float64), torch.zeros(INPUTS, dtype=torch.float64))
    for _ in range(25):
        state = algorithm.round(fed, state)
    clean, noisy = torch.sigmoid(state.x).tolist()
    assert noisy < 0.2
    assert clean > 0.5
    np.testing.assert_allclose(state.y.numpy(), truth, atol=0.5 * np.abs(truth).max())


@pytest.mark.parametrize("name", ALL)
def test_every_engine_runs_the_objective(name: str) -> None:
    """Equal sizes, so that all clients stand in one graph; prepare and a round of FedNest, loop against vectorised."""
    full = rows()
    some = [0, 1, 2, 3, -3, -2, -1]
    data = Data.from_parts({client: {f: v[some] for f, v in full.views(k).items()} for k, client in enumerate(full.names)})
    ends = []
    for engine in ("loop", "vectorised"):
        old, x, y = ALL[name](full)
        half = Stratified("validation", 2)
        problem = loss_tuning(linear(), CLASSES, ridge=0.2, sampling=half) if name == "loss_tuning" else replace(old.problem, sampling=half)
        fed = Federation(problem, data, engine=engine, seed=3)
        fed.prepare(x)
        algorithm = FedNest(0.1, 0.1, 1, 2, 2, 5.0, "neumann", 4)
        ends.append(algorithm.round(fed, algorithm.init(fed, x, y)).x)
    torch.testing.assert_close(ends[0], ends[1])
    assert (ends[0] - x).abs().max() > 1e-4
