"""What the AUC objective takes: models and functions as scores, kinds, numbers and shapes, and what it says of others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rare import F64, linear, prepared, rows
from torch import nn

from rookery import Batch, Data, Federation, Minimax, Model
from rookery.data import Replacement, Stratified
from rookery.errors import ProblemError
from rookery.objectives import auc, binary_scores
from rookery.problems import Bilevel, Conditional, Pairwise, as_bilevel


def test_a_model_s_scores_and_its_sampler() -> None:
    model = Model(nn.Linear(3, 2).double())
    problem: Any = auc(model, Pairwise)
    b = Batch(rows(6, 2, 0))
    torch.testing.assert_close(problem.s(model.vector(), b), binary_scores(model)(model.vector(), b))
    assert problem.model is model
    assert problem.sampling == Stratified("labels", share=0.5, importance=True)
    assert auc(model, positives=0.2, label="ill").sampling == Stratified("ill", share=0.2, importance=True)
    assert auc(model, positives=0.0).sampling == Replacement()
    assert auc(model, sampling=Stratified("labels", 3)).sampling == Stratified("labels", 3)
    for kind in (Minimax, Bilevel):
        reduced: Any = as_bilevel(auc(model)) if kind is Bilevel else auc(model)
        assert isinstance(prepared(reduced, 0.5), kind)


@pytest.mark.parametrize("kind", [Conditional, Bilevel, "minimax", None])
def test_another_kind_is_refused_with_a_list_of_forms(kind: Any) -> None:
    with pytest.raises(ProblemError, match=r"forms Minimax, CompositionalMinimax, Pairwise and Minimization.*cross_entropy or balanced"):
        auc(linear, kind)
    if kind is Bilevel:
        with pytest.raises(ProblemError, match=r"as_bilevel\(auc\(…\)\), in a description reduce"):
            auc(linear, kind)


@pytest.mark.parametrize(("options", "words"), [
    ({"margin": 0.0}, "margin must be positive"), ({"margin": -1.0}, "margin must be positive"), ({"margin": float("nan")}, "margin must"),
    ({"rho": -0.1}, "rho is the step size"), ({"positives": 1.0}, "below 1"), ({"positives": -0.1}, "at least 0")])
def test_wrong_numbers_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        auc(linear, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("positives", "words"), [(0, "share of positives is 0:"), (4, "share of positives is 1:")])
def test_a_federation_of_one_class_is_refused(positives: int, words: str) -> None:
    for kind in (Minimax, Pairwise):
        fed: Any = Federation(auc(linear, kind), Data.from_parts({"a": rows(4, positives, 0)}))
        with pytest.raises(ProblemError, match=f"auc compares positives.*{words}"):
            fed.prepare(torch.zeros(5, **F64))


def test_wrong_shapes_are_refused_in_words() -> None:
    model = Model(nn.Linear(3, 2).double())
    b, x, y = Batch(rows(6, 2, 0)), torch.zeros(10, **F64), torch.zeros(1, **F64)
    with pytest.raises(ProblemError, match=r"write fed.prepare\(x\) first"):
        auc(model).f(x, y, b)  # type: ignore[union-attr, call-arg, arg-type]
    problem = prepared(auc(model), 0.5)
    with pytest.raises(ProblemError, match="8 parameters of the scores and then w₁ and w₂, so 10 numbers; got 8"):
        problem.f(x[:8], y, b)
    with pytest.raises(ProblemError, match="y holds one number"):
        problem.f(x, x[:2], b)
    with pytest.raises(ProblemError, match=r"one number a row, above 0 for positives; got rows of shape \(1,\): write labels\[:, 0\]"):
        problem.f(x, y, Batch({"inputs": b.inputs, "labels": b.labels[:, None]}))
    with pytest.raises(ProblemError, match="one output, or two"):
        prepared(auc(Model(nn.Linear(3, 3).double())), 0.5).f(torch.zeros(14, **F64), y, b)
    with pytest.raises(ProblemError, match=r"write auc\(Model\(module\)\)"):
        auc(nn.Linear(3, 1))  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"scores must return one number for each of a batch's 6 rows"):
        prepared(auc(lambda x, b: b.inputs), 0.5).f(x[:5], y, b)
