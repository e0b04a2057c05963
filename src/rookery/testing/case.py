"""What an algorithm says about itself to be held against the laws: how it is made, what it solves, what it promises and sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from typing import Any

from torch import Tensor

from ..algorithms.base import Algorithm
from ..federation.federation import Federation
from ..problems.base import Problem
from ..problems.reductions import as_bilevel
from ..problems.testproblems import SIZES, TestProblem


@dataclass(frozen=True)
class Case:
    """One algorithm on one problem with a known solution.

    name:           how the tests call it
    make:           (lr, local_steps, batch) → the algorithm, whose State has an x; a batch of None is all rows
    problem:        the problem for clients with so many rows each, `problem(sizes=(5, 3, 4, 7))`, in double precision; such as those in
                    `rookery.testing.problems`
    communication:  (d, d_y, local_steps) → exchanges, floats up and floats down of one client in a round that is not the first
    lr, rounds:     with these, one local step and full batches it has converged; more rounds than that only cost time
    one_machine:    it refuses a second client, and `problem` puts all rows at one; laws about other clients are left out
    embed:          it runs on the bilevel form of the problem
    memory:         with local steps it is exact once its clients' state has been found, not from the first round on
    biased_batches: small batches bias its direction, by design
    biased_limit:   from so many local steps on its limit stays away from the solution, however small lr, by its construction
    third:          the value of a third variable at the solution, where the algorithm starts from one
    exempt:         laws that it cannot keep by its construction, by name, each with the reason
    """

    name: str
    make: Callable[[float, int, int | None], Algorithm[Any]]
    problem: Callable[..., TestProblem]
    communication: Callable[[int, int, int], tuple[int, int, int]]
    lr: float = 0.2
    rounds: int = 180
    one_machine: bool = False
    embed: bool = False
    memory: bool = False
    biased_batches: bool = False
    biased_limit: int | None = None
    third: Callable[[TestProblem], Tensor] | None = None
    exempt: Mapping[str, str] = field(default_factory=dict)

    def solved(self, sizes: tuple[int, ...] = SIZES) -> TestProblem:
        """The problem and its solution; the same object every time, so that its traced graphs are used again."""
        return _solved(self.problem, sizes)

    def federation(self, k: TestProblem, **options: Any) -> Federation[Problem]:
        """The problem's clients, with these options of `Federation`."""
        return Federation(_embedded(k.problem) if self.embed else k.problem, k.data, **options)

    def init(self, algorithm: Algorithm[Any], fed: Federation[Problem], k: TestProblem, at_solution: bool = False) -> Any:
        """The first state, from the problem's starting point or from its solution."""
        x, y = (k.x_star, k.y_star) if at_solution else (k.x0, k.y0)
        points = (x, y) if y is not None and "y" in signature(algorithm.init).parameters else (x,)
        return algorithm.init(fed, *points, *((self.third(k),) if self.third is not None and at_solution else ()))

    def advance(self, k: TestProblem, lr: float, steps: int, batch: int | None, rounds: int, at_solution: bool = False,
                **options: Any) -> tuple[Federation[Problem], Any]:
        """A federation with these options, and the state after so many rounds of local steps."""
        fed = self.federation(k, **options)
        algorithm = self.make(lr, steps, batch)
        state = self.init(algorithm, fed, k, at_solution)
        for _ in range(rounds):
            state = algorithm.round(fed, state)
        return fed, state


@cache
def _solved(problem: Callable[..., TestProblem], sizes: tuple[int, ...]) -> TestProblem:
    return problem(sizes=sizes)


_embedded = cache(as_bilevel)
