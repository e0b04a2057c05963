"""Methods of one machine against the laws that say nothing of other clients, and how they refuse a second client."""

from __future__ import annotations

import inspect

import pytest
from cases import ONE_MACHINE

from rookery import Federation
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known
from rookery.studies.communication import small_problems
from rookery.testing import Case, conformance

test_conformance = conformance(*ONE_MACHINE)


@pytest.mark.parametrize("case", ONE_MACHINE, ids=lambda c: c.name)
def test_it_refuses_a_second_client_and_problems_of_another_kind(case: Case) -> None:
    algorithm = case.make(0.1, 1, None)
    two, plain = next(small_problems(algorithm.solves)), known.minimization(sizes=(4,))
    second = "y" in inspect.signature(algorithm.init).parameters
    with pytest.raises(AlgorithmError, match=rf"{case.name} runs on one machine, and this federation has 2 clients.*: \w+"):
        algorithm.init(Federation(two.problem, two.data), *((two.x0, two.y0) if second else (two.x0,)))
    with pytest.raises(AlgorithmError, match=f"{case.name} solves {algorithm.solves.__name__} problems"):
        algorithm.init(Federation(plain.problem, plain.data), *((plain.x0, plain.x0) if second else (plain.x0,)))
