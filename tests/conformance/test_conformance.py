"""What every algorithm must satisfy. An algorithm joins with one line in cases.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from cases import CASES, Case

from rookery import Data, Federation, box
from rookery.engines import Wire
from rookery.problems.testproblems import TestProblem
from rookery.training.checkpoint import load, save

each = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
# most of a case's time is spent on tracing its graphs, which have the step size, the local steps, the batches' shapes and the number of
# clients written into them: the laws on small batches share one set of these
STEPS, BATCH, COHORT = 3, 2, 2


def advance(case: Case, k: TestProblem, lr: float, steps: int, batch: int | None, rounds: int, at_solution: bool = False,
            **options: Any) -> Any:
    fed = case.federation(k, **options)
    algorithm = case.make(lr, steps, batch)
    state = case.init(algorithm, fed, k, at_solution)
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return fed, state


@each
def test_one_local_step_leaves_the_solution_in_place(case: Case) -> None:
    k = case.solved()
    _, state = advance(case, k, case.lr, 1, None, 3, at_solution=True)
    if case.biased_limit == 1:
        assert (state.x - k.x_star).norm() > 1e-3
        return
    torch.testing.assert_close(state.x, k.x_star, rtol=0, atol=1e-9)


@each
def test_several_local_steps_move_the_solution_as_declared(case: Case) -> None:
    k = case.solved((4, 4, 4, 4))
    if case.make(case.lr, 4, None).exact_with_local_steps:
        rounds, there = (150, False) if case.memory else (1, True)
        _, state = advance(case, k, case.lr, 4, None, rounds, at_solution=there)
        torch.testing.assert_close(state.x, k.x_star, rtol=0, atol=1e-9)
        return
    offset = []
    for lr in (case.lr / 3, case.lr / 6):
        _, state = advance(case, k, lr, 4, None, int(3 / lr), at_solution=True)  # all that moves at a rate ½ or faster has settled, to e⁻⁶
        offset.append(float((state.x - k.x_star).norm()))
    if case.biased_limit is not None:
        assert offset[1] > 1e-2
        assert 0.8 < offset[0] / offset[1] < 1.25  # O(1): smaller steps do not help
        return
    assert offset[0] > 1e-5
    assert 1.6 < offset[0] / offset[1] < 2.5  # O(lr): halves with it


@each
def test_converges_to_the_closed_form(case: Case) -> None:
    k = case.solved((4, 4, 4, 4))
    fed, state = advance(case, k, case.lr, 1, None, case.rounds)
    if case.biased_limit == 1:
        after = case.make(case.lr, 1, None).round(fed, state)
        torch.testing.assert_close(after.x, state.x, rtol=0, atol=1e-6)  # it has settled, elsewhere
        assert (state.x - k.x_star).norm() > 1e-2
        return
    torch.testing.assert_close(state.x, k.x_star, rtol=0, atol=1e-6)
    assert (k.x0 - k.x_star).norm() > 0.1
    assert k.gradient(state.x).norm() < 1e-5


@pytest.mark.parametrize("case", [c for c in CASES if c.biased_limit != 1 and c.name != "PDSGD"], ids=lambda c: c.name)
def test_a_constraint_is_met_where_projected_gradient_descent_meets_it(case: Case) -> None:
    """One local step, and several where the method is exact with them: clients that the set holds back do not bias the mean.

    Left out are cases whose limit is away from the solution without a constraint already, and PDSGD, whose multiplier is another under one.
    """
    k = case.solved((4, 4, 4, 4))
    set_ = box(-10.0, float(k.x_star.max()) - 0.3)
    x = set_(k.x_star)
    for _ in range(4000):
        x = set_(x - 0.05 * k.gradient(x))
    assert (x - k.x_star).norm() > 0.1
    held = replace(k, problem=replace(k.problem, project_x=set_), x_star=x)
    exact = case.make(case.lr, 1, None).exact_with_local_steps
    for steps in (1, 3) if exact and not case.memory and k.y_star is None else (1,):
        # where a second variable has to follow, it runs as long as it needs; else the solution stays in place
        _, state = advance(case, held, case.lr, steps, None, case.rounds if k.y_star is not None else 3, at_solution=True)
        torch.testing.assert_close(state.x, x, rtol=0, atol=1e-6)


@each
@pytest.mark.parametrize(("batch", "clients_per_round"), [(None, None), (BATCH, None), (BATCH, COHORT)], ids=["full", "batch", "cohort"])
def test_engines_agree(case: Case, batch: int | None, clients_per_round: int | None) -> None:
    k = case.solved()
    runs = {e: advance(case, k, case.lr, STEPS, batch, 4, engine=e, clients_per_round=clients_per_round, weights="samples", seed=7)
            for e in ("loop", "vectorised", "wire")}
    loop, state = runs["loop"]
    for name, (fed, other) in runs.items():
        if name == "wire":
            assert torch.equal(other.x, state.x)
        else:
            torch.testing.assert_close(other.x, state.x, rtol=1e-10, atol=1e-12)
        assert fed.ledger == loop.ledger
    assert loop.ledger["train"].samples > 0


@each
def test_permuting_clients_changes_nothing(case: Case) -> None:
    k = case.solved()
    parts = {name: k.data.part(i).fields for i, name in enumerate(k.data.names)}
    order = ["site-2", "site-0", "site-3", "site-1"]
    shuffled = TestProblem(k.problem, Data.from_parts({name: parts[name] for name in order}), k.x_star, k.gradient, k.y_star)
    for clients_per_round in (None, 2):
        _, a = advance(case, k, case.lr, 2, 2, 3, clients_per_round=clients_per_round, engine="loop")
        _, b = advance(case, shuffled, case.lr, 2, 2, 3, clients_per_round=clients_per_round, engine="loop")
        torch.testing.assert_close(a.x, b.x, rtol=1e-10, atol=1e-12)


@each
def test_identical_clients_are_one_client(case: Case) -> None:
    k = case.solved()
    part = k.data.part(1).fields
    one = TestProblem(k.problem, Data.from_parts({"only": part}), k.x_star, k.gradient, k.y_star)
    many = TestProblem(k.problem, Data.from_parts({f"copy-{i}": part for i in range(3)}), k.x_star, k.gradient, k.y_star)
    _, a = advance(case, one, case.lr, 3, None, 3)
    _, b = advance(case, many, case.lr, 3, None, 3, engine="loop")
    torch.testing.assert_close(a.x, b.x, rtol=1e-10, atol=1e-12)


@each
@pytest.mark.parametrize("steps", [1, 4])
def test_ledger_is_the_papers_formula(case: Case, steps: int) -> None:
    k = case.solved()
    fed, state = advance(case, k, case.lr, steps, None, 1, engine="loop")
    before = {name: getattr(fed.ledger["train"], name) for name in ("exchanges", "floats_up", "floats_down", "bytes_up")}
    case.make(case.lr, steps, None).round(fed, state)
    after = fed.ledger["train"]
    exchanges, up, down = case.floats(len(k.x_star), 0 if k.y_star is None else len(k.y_star), steps)
    clients = fed.population
    assert after.exchanges - before["exchanges"] == exchanges
    assert after.floats_up - before["floats_up"] == up * clients
    assert after.floats_down - before["floats_down"] == down * clients
    assert after.bytes_up - before["bytes_up"] == 8 * up * clients


@each
@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize("clients_per_round", [None, COHORT])
def test_resumed_run_ends_bit_for_bit_the_same(case: Case, engine: str, clients_per_round: int | None, tmp_path: Any) -> None:
    k = case.solved()
    algorithm = case.make(case.lr, STEPS, BATCH)

    def federation() -> Federation:
        return case.federation(k, engine=Wire(tmp_path) if engine == "wire" else engine, clients_per_round=clients_per_round)

    fed, whole = advance(case, k, case.lr, STEPS, BATCH, 4, engine=engine, clients_per_round=clients_per_round)
    first = federation()
    state = case.init(algorithm, first, k)
    for _ in range(2):
        state = algorithm.round(first, state)
    save(tmp_path / "half.ckpt", algorithm, first, state)
    second = federation()
    if engine == "wire":
        second.engine.run = first.engine.run  # type: ignore[attr-defined]
        for site in second.engine.sites:  # type: ignore[attr-defined]
            site.run = first.engine.run  # type: ignore[attr-defined]
    state = load(tmp_path / "half.ckpt", algorithm, second)
    for _ in range(2):
        state = algorithm.round(second, state)
    assert torch.equal(state.x, whole.x)
    assert second.ledger == fed.ledger


@pytest.mark.parametrize("case", [c for c in CASES if not c.biased], ids=lambda c: c.name)  # the 1/m law of the others has its own test
def test_noise_of_small_batches_does_not_bias_the_mean_direction(case: Case) -> None:
    """From the solution, over many seeds, the mean move is small against a single one."""
    k = case.solved()
    moves = torch.stack([advance(case, k, 0.01, 1, 2, 1, at_solution=True, seed=s, engine="loop")[1].x - k.x_star for s in range(40)])
    spread = moves.std(0).norm()
    assert spread > 1e-6
    assert moves.mean(0).norm() < 4 * spread / np.sqrt(40)
