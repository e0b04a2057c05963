"""FeDXL on clients of unequal sizes and classes: what each counts for, its state of a number for each row, and draws from the pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rare import F64, linear, rows

from rookery import Data, Federation, FeDXL1, FeDXL2, Pairwise
from rookery.data import Stratified
from rookery.engines import Wire
from rookery.errors import AlgorithmError
from rookery.objectives import auc, partial_auc
from rookery.problems import testproblems as known
from rookery.training.checkpoint import load, save

X = torch.tensor([0.8, -0.3, 0.6], **F64)


def sites() -> Data:
    """Unequal clients, two of one class."""
    return Data.from_parts({"a": rows(12, 4, 0), "b": rows(9, 2, 1), "none": rows(7, 0, 2), "all": rows(5, 5, 3)})


def federation(problem: Pairwise, **options: Any) -> Federation[Pairwise]:
    fed = Federation(problem, sites(), weights="samples", **options)
    fed.prepare(X)
    return fed


def squared(**options: Any) -> Pairwise:
    problem = auc(linear, kind=Pairwise, squash=False, **options)
    assert isinstance(problem, Pairwise)
    return problem


def test_one_step_at_unequal_clients_is_the_gradient_of_the_pooled_pairs() -> None:
    """Every row of every client counts alike, though clients differ in size and in their shares of positives, or lack a class."""
    fed = federation(squared(positives=0.0), engine="loop")
    algorithm = FeDXL1(lr=0.01, batch=6)
    k = fed.data.fields
    x = X.clone().requires_grad_()
    s = k["inputs"] @ x
    loss = (1 - s[k["labels"] > 0][:, None] + s[k["labels"] == 0][None, :]).clamp_min(0).square().mean()
    (gradient,) = torch.autograd.grad(loss, x)
    whole = replace(algorithm, batch=None)
    with pytest.raises(Exception, match="shape"):  # pools of unequal lengths cannot be collected
        whole.init(fed, X)
    moves = []
    for seed in range(300):
        fed = federation(squared(), engine="loop", seed=seed)
        state = algorithm.init(fed, X)
        moves.append((X - algorithm.round(fed, state).x) / 0.01)
    moves_ = torch.stack(moves)
    error = moves_.std(0) / len(moves) ** 0.5
    assert ((moves_.mean(0) - gradient).abs() < 4 * error + 0.03).all()  # the pool's weights are ratios: a small bias is left
    assert (gradient.abs() > 0.2).any()


@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_fedxl2_keeps_a_number_for_each_row_of_unequal_clients(clients_per_round: int | None) -> None:
    problem = partial_auc(linear, kind=Pairwise, lam=2.0)
    assert isinstance(problem, Pairwise)
    algorithm = FeDXL2(lr=0.1, local_steps=2, batch=4, gamma=0.6, beta=0.4)
    ends = {}
    for engine in ("loop", "auto", "wire"):
        fed = federation(problem, engine=engine, clients_per_round=clients_per_round, seed=1)
        state = algorithm.init(fed, X)
        for _ in range(4):
            state = algorithm.round(fed, state)
        ends[engine] = (state.x, fed.ledger)
    assert torch.equal(ends["loop"][0], ends["wire"][0])
    torch.testing.assert_close(ends["auto"][0], ends["loop"][0], rtol=1e-10, atol=1e-12)
    assert ends["loop"][1] == ends["auto"][1] == ends["wire"][1]


@pytest.mark.parametrize("engine", ["loop", "auto", "wire"])
def test_a_state_of_unequal_lengths_survives_a_checkpoint(engine: str, tmp_path: Path) -> None:
    problem = partial_auc(linear, kind=Pairwise, lam=2.0)
    algorithm = FeDXL2(lr=0.1, local_steps=2, batch=4, gamma=0.6, beta=0.4)

    def made() -> Federation[Pairwise]:
        assert isinstance(problem, Pairwise)
        return federation(problem, engine=Wire(tmp_path) if engine == "wire" else engine, clients_per_round=3, seed=1)

    fed, first, second = made(), made(), made()
    whole, state = algorithm.init(fed, X), algorithm.init(first, X)
    for _ in range(4):
        whole = algorithm.round(fed, whole)
    for _ in range(2):
        state = algorithm.round(first, state)
    save(tmp_path / "half.ckpt", algorithm, first, state)
    state = load(tmp_path / "half.ckpt", algorithm, second)
    for _ in range(2):
        state = algorithm.round(second, state)
    assert torch.equal(state.x, whole.x)


def test_draws_from_the_pool_estimate_its_mean() -> None:
    k = known.pairwise()
    assert isinstance(k.problem, Pairwise)
    all_of_it, moves = FeDXL1(lr=0.1), []
    fed = Federation(k.problem, k.data, engine="loop")
    exact = all_of_it.round(fed, all_of_it.init(fed, k.x0)).x
    for seed in range(200):
        fed = Federation(k.problem, k.data, engine="loop", seed=seed)
        drawn = FeDXL1(lr=0.1, passive=3)
        moves.append(drawn.round(fed, drawn.init(fed, k.x0)).x)
    found = torch.stack(moves)
    assert ((found.mean(0) - exact).abs() < 4 * found.std(0) / len(moves) ** 0.5).all()
    assert float(found.std(0).max()) > 1e-3


def test_what_cannot_be_compared_is_refused() -> None:
    k = known.pairwise()
    assert isinstance(k.problem, Pairwise)
    fed = Federation(replace(k.problem, share=None), k.data)
    with pytest.raises(AlgorithmError, match=r"share of positives.*share=None"):
        FeDXL1(lr=0.1).init(fed, k.x0)
    only = Data.from_parts({"a": rows(6, 0, 0)})
    drawn = squared(sampling=Stratified("labels", share=0.5, importance=True))
    fed = Federation(replace(drawn, share=0.5, statistics=None, finish=None), only)
    with pytest.raises(AlgorithmError, match="no client has drawn any of the positives"):
        FeDXL1(lr=0.1, batch=4).init(fed, X)


def test_a_least_batch_refuses_what_shows_single_rows() -> None:
    """Every score of the pool is one row's."""
    k = known.pairwise()
    assert isinstance(k.problem, Pairwise)
    with pytest.raises(AlgorithmError, match=r"FeDXL1 shows the score of every row.*min_batch=2"):
        FeDXL1(lr=0.1).init(Federation(k.problem, k.data, min_batch=2), k.x0)
