"""The laws of `rookery.testing`, held against every algorithm of the package. An algorithm joins with one line in cases.py."""

import pytest
from cases import CASES, LIMITS, VARIANTS

from rookery.testing import Case, laws_of


@pytest.mark.parametrize(("case", "law"), [
    pytest.param(case, law, id=f"{case.name}-{law}", marks=[pytest.mark.slow] * (case.name in VARIANTS and law in LIMITS))
    for case in CASES for law in laws_of(case)])
def test_conformance(case: Case, law: str) -> None:
    laws_of(case)[law]()


def test_every_algorithm_is_held_against_its_laws_outside_of_the_slow_tests() -> None:
    """A variant whose limits are among them has another one beside it that keeps the same laws."""
    held = {law for case in CASES if case.name not in VARIANTS for law in ((case.name.partition("/")[0], law) for law in laws_of(case))}
    assert not [(case.name, law) for case in CASES if case.name in VARIANTS for law in laws_of(case)
                if law in LIMITS and (case.name.partition("/")[0], law) not in held]
    assert set(VARIANTS) <= {case.name for case in CASES}
