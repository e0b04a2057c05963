"""Rows, labels and vectors that do not fit: a sentence that names the client or the field, on every engine, and never torch's own error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import FCSG, Data, Epochs, FedAvg, FedDRO, Federation, FedNest, Minimization, Model, Problem
from rookery.data import Stratified
from rookery.errors import DataError, EngineError, ProblemError
from rookery.models import mlp
from rookery.objectives import (
    ap_surrogate,
    balanced_cross_entropy,
    cross_entropy,
    cross_entropy_losses,
    data_reweighting,
    fair,
    group_dro,
    hyper_representation,
    kl_dro,
    loss_tuning,
)

ENGINES = ("loop", "vectorised", "wire", "auto")
torch.manual_seed(0)
NET = Model(mlp(5, 4, 3))


def parts(**columns: Any) -> dict[str, dict[str, Tensor]]:
    """Three clients; a column is a function of its client's rows, or (client, function) for one client alone."""
    r = torch.Generator().manual_seed(1)
    out = {}
    for k, name in enumerate("abc"):
        rows = {"inputs": torch.randn(6 + k, 5, generator=r), "labels": torch.arange(6 + k) % 3,
                "validation": torch.arange(6 + k) % 2, "group": torch.arange(6 + k) % 4}
        for field, change in columns.items():
            who, fn = change if isinstance(change, tuple) else (name, change)
            if who == name:
                rows[field] = fn(rows[field])
        out[name] = rows
    return out


def advance(problem: Problem, rows: Any, engine: str, *start: Tensor, algorithm: Any = None) -> Tensor:
    fed = Federation(problem, Data.from_parts(rows), engine=engine)
    fed.prepare(start[0])
    algorithm = algorithm or FedAvg(0.1, 2, 4)
    state = algorithm.init(fed, *start)
    for _ in range(3):
        state = algorithm.round(fed, state)
    return state.x  # type: ignore[no-any-return]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("columns", "text"), [
    ({"labels": ("b", lambda v: v + 4)}, r"'b': the oracle 'gradient' failed.*Class numbers.*labels: int64 \(4,\) from"),
    ({"labels": ("c", lambda v: v - 100)}, r"'c': the oracle 'gradient' failed.*Class numbers.*labels: int64 \(4,\) from -100"),
    ({"inputs": lambda v: v[:, :4]}, r"'a': .*first layer.*inputs: float32 \(4, 4\)"),
    ({"inputs": lambda v: v.double()}, r"'a': .*write inputs.float\(\).*a vector: float32 \(39,\); inputs: float64"),
    ({"inputs": lambda v: v.long()}, r"'a': .*share one dtype.*inputs: int64"),
    ({"labels": lambda v: v.float()}, r"labels are whole class numbers.*float32.*labels.long\(\)"),
    ({"labels": lambda v: v[:, None]}, r"labels hold one class number for each of the 4 rows.*write labels\[:, 0\]"),
])
def test_rows_that_do_not_fit_the_model_are_refused(columns: Any, text: str, engine: str) -> None:
    with pytest.raises(ProblemError, match=text):
        advance(cross_entropy(NET), parts(**columns), engine, NET.vector())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_whole_labels_of_any_dtype_are_class_numbers(dtype: torch.dtype, engine: str) -> None:
    for make in (cross_entropy, balanced_cross_entropy):
        x = advance(make(NET), parts(labels=lambda v: v.to(dtype)), engine, NET.vector())
        torch.testing.assert_close(x, advance(make(NET), parts(), "loop", NET.vector()))


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_of_true_and_false_are_the_classes_0_and_1(engine: str) -> None:
    net = Model(nn.Linear(5, 2))
    whole = advance(cross_entropy(net), parts(labels=lambda v: (v > 0).long()), "loop", net.vector())
    torch.testing.assert_close(advance(cross_entropy(net), parts(labels=lambda v: v > 0), engine, net.vector()), whole)


def test_a_probability_for_each_class_is_a_label_too() -> None:
    hard, soft = parts(), parts(labels=lambda v: F.one_hot(v, 3).float())
    torch.testing.assert_close(advance(cross_entropy(NET), soft, "vectorised", NET.vector()),
                               advance(cross_entropy(NET), hard, "loop", NET.vector()))


WIDE = Model(nn.Linear(5, 4))
ONE = Model(nn.Linear(5, 1))


@pytest.mark.parametrize(("problem", "start", "text"), [
    (cross_entropy(NET), torch.zeros(NET.size + 2), "x has 39 numbers, the model's parameters; got 41"),
    (kl_dro(cross_entropy_losses(NET), shift=0.0), torch.zeros(NET.size + 1), "x has 39 numbers"),
    (ap_surrogate(ONE), torch.zeros(ONE.size + 1), "x has 6 numbers"),
    (cross_entropy(ONE), ONE.vector(), r"at least 2 classes.*\(4, 1\)"),
    (cross_entropy(NET, weight=torch.ones(2)), NET.vector(), r"each of the 3 classes that the model scores; it holds 2"),
    (balanced_cross_entropy(WIDE, classes=3), WIDE.vector(), r"each of 3 classes.*\(4, 4\)"),
])
def test_vectors_outputs_and_weights_of_another_length_are_refused(problem: Problem, start: Tensor, text: str) -> None:
    algorithm = {"Exponential": FedDRO(0.1, 0.5, batch=4), "Conditional": FCSG(0.1, outer=2, inner=2)}.get(type(problem).__name__)
    with pytest.raises(ProblemError, match=text):
        advance(problem, parts(), "loop", start, algorithm=algorithm)


@pytest.mark.parametrize("weight", [[1.0, -1.0, 1.0], [1.0, float("nan"), 1.0], [[1.0, 1.0, 1.0]]])
def test_class_weights_are_one_finite_number_each(weight: Any) -> None:
    with pytest.raises(ProblemError, match="one finite number for each class"):
        cross_entropy(NET, weight=torch.tensor(weight))


def test_class_weights_may_be_a_list() -> None:
    listed = cross_entropy(NET, weight=[1.0, 2.0, 3.0])  # type: ignore[arg-type]
    torch.testing.assert_close(advance(listed, parts(), "vectorised", NET.vector()),
                               advance(cross_entropy(NET, weight=torch.tensor([1.0, 2.0, 3.0])), parts(), "loop", NET.vector()))


SPLIT = {"sampling": Stratified("validation", 2)}
NEST = FedNest(lr=0.1, inner_lr=0.1, inner_rounds=1, terms=2, smoothness=9.0, batch=4)


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize(("problem", "x", "y", "columns", "text"), [
    (data_reweighting(cross_entropy_losses(NET), **SPLIT), 2, NET.size, {}, r"'.': the oracle.*failed.*groups between 0.*group: int64"),
    (data_reweighting(cross_entropy_losses(NET), **SPLIT), 4, NET.size, {"group": ("b", lambda v: v - 9)}, r"'b': .*group: int64"),
    (data_reweighting(cross_entropy_losses(NET), **SPLIT), 4, NET.size, {"group": lambda v: v.float()}, "'group' holds a whole number"),
    (data_reweighting(cross_entropy_losses(NET), **SPLIT), 4, NET.size + 1, {}, "x has 39 numbers"),
    (loss_tuning(NET, 3, torch.ones(3), **SPLIT), 5, NET.size, {}, "x has 6 numbers"),
    (loss_tuning(WIDE, 3, torch.ones(3), **SPLIT), 6, WIDE.size, {}, r"each of 3 classes"),
    (hyper_representation(NET, 4, 3, **SPLIT), NET.size, 15, {}, r"features put out 4 numbers a row"),
])
def test_bilevel_objectives_refuse_what_does_not_fit(problem: Problem, x: int, y: int, columns: Any, text: str, engine: str) -> None:
    with pytest.raises(ProblemError, match=text):
        advance(problem, parts(**columns), engine, torch.zeros(x), torch.zeros(y), algorithm=NEST)


@pytest.mark.parametrize("problem", [group_dro(cross_entropy_losses(NET), 3), fair(cross_entropy_losses(NET), ONE, 4),
                                     balanced_cross_entropy(NET)], ids=["group_dro", "fair", "balanced"])
def test_groups_and_classes_with_a_column_of_their_own_are_refused(problem: Problem) -> None:
    with pytest.raises(ProblemError, match="one number a row"):
        advance(problem, parts(labels=lambda v: v[:, None], group=lambda v: v[:, None]), "loop", NET.vector())


def test_positives_with_a_column_of_their_own_are_refused() -> None:
    rows = parts(labels=lambda v: v[:, None])
    with pytest.raises(DataError, match="one number each"):
        advance(ap_surrogate(ONE), rows, "loop", ONE.vector(), algorithm=FCSG(0.1, outer=2, inner=2))
    with pytest.raises(ProblemError, match="'labels' holds one number a row"):
        advance(ap_surrogate(ONE), rows, "loop", ONE.vector(), algorithm=FCSG(0.1, outer=None, inner=None))


@pytest.mark.parametrize("engine", ENGINES)
def test_any_error_in_a_loss_names_the_client(engine: str) -> None:
    def f(x: Tensor, b: Any) -> Tensor:
        return (x[:5] @ b.input.T).mean()  # the field is called inputs

    with pytest.raises(ProblemError, match=r"'a': the oracle 'gradient' failed with AttributeError: a batch has the fields.*float32"):
        advance(Minimization(f), parts(), engine, torch.ones(5))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [4, None])
def test_a_loss_that_changes_its_batch_is_refused(batch: int | None, engine: str) -> None:
    net = Model(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)))
    with pytest.raises((ProblemError, DataError), match=r"in place.*inplace=False"):
        advance(cross_entropy(net), parts(), engine, net.vector(), algorithm=FedAvg(0.1, 2, batch))


@pytest.mark.parametrize("device", ["cuda:77", "gpu", torch.device("cuda:77")])
def test_a_device_that_is_not_there_is_refused(device: Any) -> None:
    with pytest.raises(EngineError, match=r"no device '(cuda:77|gpu)' on this machine; write device='cpu'"):
        Federation(cross_entropy(NET), Data.from_parts(parts()), device=device)


def test_columns_have_one_dtype_at_all_clients() -> None:
    with pytest.raises(DataError, match=r"'inputs' is torch.float64 at client 'b' and torch.float32 at the first"):
        Data.from_parts(parts(inputs=("b", lambda v: v.double())))


def test_epochs_count_all_rows() -> None:
    fed = Federation(cross_entropy(NET), Data.from_parts(parts()))
    assert fed.steps(Epochs(2), 4).tolist() == [3, 4, 4]  # type: ignore[union-attr]
    assert "validation" in str(Epochs.__doc__)
