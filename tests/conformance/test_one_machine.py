"""Methods of one machine against the laws of the conformance suite that say nothing of other clients."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import test_conformance as laws
from cases import ONE_MACHINE, Case

from rookery import Federation
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known
from rookery.studies.communication import small_problems

alone = pytest.mark.parametrize("case", ONE_MACHINE, ids=lambda c: c.name)


@alone
def test_it_solves_the_closed_form(case: Case) -> None:
    laws.test_one_local_step_leaves_the_solution_in_place(case)
    laws.test_several_local_steps_move_the_solution_as_declared(case)
    laws.test_converges_to_the_closed_form(case)
    for steps in (1, 4):
        laws.test_ledger_is_the_papers_formula(case, steps)


@alone
@pytest.mark.parametrize("batch", [None, 2])
def test_every_engine_gives_the_same(case: Case, batch: int | None) -> None:
    laws.test_engines_agree(case, batch, None)


@alone
@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_it_resumes(case: Case, engine: str, tmp_path: Any) -> None:
    laws.test_resumed_run_ends_bit_for_bit_the_same(case, engine, None, tmp_path)


@alone
def test_it_refuses_a_second_client_and_problems_of_another_kind(case: Case) -> None:
    algorithm = case.make(0.1, 1, None)
    two, plain = next(small_problems(algorithm.solves)), known.minimization(sizes=(4,))
    second = "y" in inspect.signature(algorithm.init).parameters
    with pytest.raises(AlgorithmError, match=rf"{case.name} runs on one machine, and this federation has 2 clients.*: \w+"):
        algorithm.init(Federation(two.problem, two.data), *((two.x0, two.y0) if second else (two.x0,)))
    with pytest.raises(AlgorithmError, match=f"{case.name} solves {algorithm.solves.__name__} problems"):
        algorithm.init(Federation(plain.problem, plain.data), *((plain.x0, plain.x0) if second else (plain.x0,)))
