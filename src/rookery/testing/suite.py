"""The laws that hold for a case, and two ways to hold it against them: a test for pytest to collect, and a plain call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..errors import AlgorithmError
from . import laws
from .case import Case
from .laws import BATCH, COHORT, STEPS

Law = Callable[[], None]


class BrokenLaws(AssertionError):
    """Which laws a case breaks: `laws` has what each of them raised, by its name."""

    def __init__(self, case: Case, broken: dict[str, Exception], held: int) -> None:
        self.laws = broken
        listed = "\n".join(f"- {name}: {error if isinstance(error, AssertionError) else repr(error)}" for name, error in broken.items())
        super().__init__(f"{case.name} breaks {len(broken)} of the {held} laws it is held against:\n{listed}")


def laws_of(case: Case) -> dict[str, Law]:
    """The laws a case is held against, by name; a law in several settings is there once for each, the setting after a dash."""
    alone, biased = case.one_machine, case.biased_limit == 1
    cohorts = {} if alone else {"cohort": COHORT}
    found: dict[str, Law] = {}

    def add(law: Callable[..., None], settings: dict[str, tuple[object, ...]] | None = None) -> None:
        for setting, values in (settings or {"": ()}).items():
            found[f"{law.__name__}-{setting}".removesuffix("-")] = partial(law, case, *values)

    add(laws.one_local_step_leaves_the_solution_in_place)
    add(laws.several_local_steps_move_the_solution_as_declared)
    add(laws.converges_to_the_closed_form)
    if not biased:  # a case whose limit is away from the solution without a constraint has no solution to keep under one
        add(laws.a_constraint_is_met_where_projected_gradient_descent_meets_it)
    add(laws.engines_agree, {"full": (None, None), "batch": (BATCH, None), **{name: (BATCH, size) for name, size in cohorts.items()}})
    if not alone:
        add(laws.permuting_clients_changes_nothing)
        add(laws.identical_clients_are_one_client)
        add(laws.a_client_of_weight_two_counts_as_two)
    add(laws.ledger_is_the_papers_formula, {"1": (1,), "4": (4,), **{name: (STEPS, size) for name, size in cohorts.items()}})
    add(laws.resumed_run_ends_bit_for_bit_the_same, {f"{engine}-{name}" if name else engine: (engine, size)
                                                     for name, size in {"": None, **cohorts}.items()
                                                     for engine in ("loop", "vectorised", "wire")})
    if not case.biased_batches:  # that the bias of the others falls as 1/m is no law of every algorithm
        add(laws.noise_of_small_batches_does_not_bias_the_mean_direction)
    if alone:
        add(laws.a_second_client_is_refused)
    return {name: law for name, law in found.items() if not _exempt(case, name, found)}


def _exempt(case: Case, name: str, found: dict[str, Law]) -> bool:
    known = {short for full in found for short in (full, full.partition("-")[0])}
    if unknown := sorted(set(case.exempt) - known):
        raise AlgorithmError(f"exempt of {case.name} names laws that it would be held against else; {unknown[0]!r} is none of "
                             f"{', '.join(found)}")
    return name in case.exempt or name.partition("-")[0] in case.exempt


def check(case: Case) -> None:
    """Hold a case against its laws; raise `BrokenLaws`, which lists all that are broken. Needs no pytest."""
    held, broken = laws_of(case), dict[str, Exception]()
    for name, law in held.items():
        try:
            law()
        except Exception as error:  # an algorithm that cannot even run breaks the law too, and the next one is asked all the same
            broken[name] = error
    if broken:
        raise BrokenLaws(case, broken, len(held))


def conformance(*cases: Case) -> Callable[[Case, str], None]:
    """A test for pytest to collect, once for each case and law: `test_conformance = conformance(Case(…))` in a test file.

    Its ids are case-law, so that `pytest -k engines_agree` and `pytest -k MyProx` find them.
    """
    try:
        import pytest
    except ModuleNotFoundError:
        raise ModuleNotFoundError("rookery.testing.conformance makes tests for pytest, which is not installed: pip install pytest, or call "
                                  "rookery.testing.check(case), which needs nothing more") from None
    held = [pytest.param(case, law, id=f"{case.name}-{law}") for case in cases for law in laws_of(case)]

    @pytest.mark.parametrize(("case", "law"), held)
    def test_conformance(case: Case, law: str) -> None:
        laws_of(case)[law]()

    return test_conformance
