"""Each law is broken by an algorithm that is wrong in its way, and by no other fault than that; a right algorithm keeps them all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wrong
from wrong import Right

from rookery.errors import AlgorithmError
from rookery.testing import BrokenLaws, Case, check, conformance, laws, laws_of, problems


def case(kind: Callable[..., Right], problem: Callable[..., problems.TestProblem] = problems.minimization, **options: Any) -> Case:
    return Case(kind.__name__, kind, problem, options.pop("communication", lambda d, d_y, q: (1, d, d)), **options)


def one_machine(sizes: tuple[int, ...]) -> problems.TestProblem:
    return problems.minimization(sizes=(sum(sizes),))


test_conformance = conformance(case(Right))

SOLUTION = {"one_local_step_leaves_the_solution_in_place", "converges_to_the_closed_form"}
SEVERAL = "several_local_steps_move_the_solution_as_declared"
CONSTRAINT = "a_constraint_is_met_where_projected_gradient_descent_meets_it"
PERMUTED = "permuting_clients_changes_nothing"
WEIGHT = "a_client_of_weight_two_counts_as_two"
LEDGER = {f"ledger_is_the_papers_formula-{setting}" for setting in ("1", "4", "cohort")}
RESUMED = {f"resumed_run_ends_bit_for_bit_the_same-{engine}{rest}" for engine in ("loop", "vectorised", "wire") for rest in ("", "-cohort")}
WRONG: list[tuple[Case, set[str]]] = [
    (case(wrong.WrongStep), {*SOLUTION, SEVERAL}),
    (case(wrong.SaysExact), {SEVERAL, CONSTRAINT}),
    (case(wrong.SaysInexact, communication=lambda d, d_y, q: (2, 2 * d, 2 * d)), {SEVERAL}),
    (case(wrong.ForgetsWeights), {WEIGHT}),
    (case(wrong.ProjectsUploads), {CONSTRAINT}),
    (case(wrong.LastCohort), {name for name in laws_of(case(Right)) if "cohort" in name} | {PERMUTED}),
    (case(wrong.AsksEveryone), {"ledger_is_the_papers_formula-cohort"}),
    (case(wrong.FirstClient), {PERMUTED}),
    (case(wrong.CountsClients), {"identical_clients_are_one_client", WEIGHT}),
    (case(wrong.KeepsMomentumAside), RESUMED),
    (case(wrong.SendsTwice), LEDGER),
    (case(wrong.Clips), {"noise_of_small_batches_does_not_bias_the_mean_direction"}),
    # a graph keeps the number that was thrown when it was traced
    (case(wrong.ThrowsDice), {"engines_agree-batch", "engines_agree-cohort", PERMUTED, *(n for n in RESUMED if "vectorised" not in n)}),
    (case(Right, one_machine, one_machine=True), {"a_second_client_is_refused", SEVERAL}),
    (case(Right, biased_limit=2), {SEVERAL}),
]


@pytest.mark.parametrize(("case", "expected"), WRONG, ids=[case.name for case, _ in WRONG])
def test_what_is_wrong_breaks_its_law_and_no_other(case: Case, expected: set[str]) -> None:
    with pytest.raises(BrokenLaws) as caught:
        check(case)
    assert set(caught.value.laws) == expected
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{case.name} breaks {len(expected)} of the {len(laws_of(case))} laws it is held against:"
    assert {line[2:].partition(":")[0] for line in lines if line.startswith("- ")} == expected


def test_a_law_says_what_must_hold() -> None:
    with pytest.raises(AssertionError, match=r"SendsTwice: a round of 1 local steps with 4 of 4 clients costs what its formula says, .*"
                                             r"'floats_up': 12.*; the ledger has counted .*'floats_up': 24"):
        laws.ledger_is_the_papers_formula(case(wrong.SendsTwice))


def test_an_exempt_law_is_left_out_in_all_its_settings_or_in_one() -> None:
    every = set(laws_of(case(Right)))
    assert every - set(laws_of(case(Right, exempt={"ledger_is_the_papers_formula": "its messages are of random length"}))) == LEDGER
    assert every - set(laws_of(case(Right, exempt={"engines_agree-cohort": "it needs every client"}))) == {"engines_agree-cohort"}
    with pytest.raises(AlgorithmError, match="exempt of Right names laws that it would be held against else; 'engines_aggree' is none of"):
        laws_of(case(Right, exempt={"engines_aggree": "a slip"}))


MINE = """
from dataclasses import dataclass
from typing import NamedTuple
from torch import Tensor
import rookery.testing
from rookery import Algorithm, Federation, Minimization
from rookery.federation import MinimizationClient
from rookery.testing import Case, problems

@dataclass(frozen=True)
class Mine(Algorithm[Minimization]):
    lr: float
    local_steps: int
    batch: int | None

    class State(NamedTuple):
        x: Tensor

    def init(self, fed: Federation[Minimization], x: Tensor) -> State:
        return self.State(self.validate(fed, x))

    def round(self, fed: Federation[Minimization], s: State) -> State:
        S = fed.cohort()
        return self.State(fed.project_x(S.mean(S.iterate(self.step, S.broadcast(s.x), steps=self.local_steps))))

    def step(self, c: MinimizationClient, x: Tensor) -> Tensor:
        x = c.project_x(x)
        return x - self.lr * c.gradient(x, c.draw(self.batch))

test_conformance = rookery.testing.conformance(Case("Mine", Mine, problems.minimization, lambda d, d_y, q: (1, d, d)))
"""


def test_one_line_in_a_file_of_ones_own_is_all_laws(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(MINE)
    done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "test_mine.py"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    for name in laws_of(case(Right)):
        assert f"test_mine.py::test_conformance[Mine-{name}] PASSED" in done.stdout
    assert f"{len(laws_of(case(Right)))} passed" in done.stdout


def test_without_pytest_only_conformance_is_missing() -> None:
    text = """
import sys
sys.modules["pytest"] = None
import rookery.testing
try:
    rookery.testing.conformance()
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert "pytest, which is not installed: pip install pytest, or call rookery.testing.check(case)" in done.stdout
