"""What every algorithm must satisfy, one function for each law. A law that is broken raises an AssertionError that says what must hold.

Most of a case's time is spent on tracing its graphs, which have the step size, the local steps, the batches' shapes and the number of
clients written into them: the laws on small batches share one set of these.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ..data import Data
from ..engines import Wire
from ..errors import AlgorithmError
from ..federation.federation import Federation
from ..problems.base import Problem
from ..problems.projections import box
from ..problems.testproblems import TestProblem
from ..training.checkpoint import load, save
from .case import Case
from .faults import FaultyWire

STEPS, BATCH, COHORT = 3, 2, 2
EQUAL = (4, 4, 4, 4)  # rows of the clients where they have equally many


def one_local_step_leaves_the_solution_in_place(case: Case) -> None:
    """With full batches and one local step, rounds from the solution move nothing."""
    k = case.solved()
    _, state = case.advance(k, case.lr, 1, None, 3, at_solution=True)
    if case.biased_limit == 1:
        _require(_distance(state.x, k.x_star) > 1e-3, f"{case.name} says biased_limit=1: even one local step leaves the solution; it "
                 "stayed there: leave biased_limit out")
        return
    _close(state.x, k.x_star, f"{case.name}: with full batches and one local step, three rounds from the solution move nothing", atol=1e-9)


def several_local_steps_move_the_solution_as_declared(case: Case) -> None:
    """With full batches and four local steps, nothing moves if `exact_with_local_steps`; else by O(lr), or O(1) where that is declared."""
    k = case.solved(EQUAL)
    if case.make(case.lr, 4, None).exact_with_local_steps:
        rounds, there = (150, False) if case.memory else (1, True)
        _, state = case.advance(k, case.lr, 4, None, rounds, at_solution=there)
        found = "find the solution" if case.memory else "leave the solution in place"
        _close(state.x, k.x_star, f"{case.name} says exact_with_local_steps: four local steps with full batches {found}", atol=1e-9)
        return
    offset = []
    for lr in (case.lr / 3, case.lr / 6):
        # all that moves at a rate ½ or faster has settled, to e⁻⁶
        _, state = case.advance(k, lr, 4, None, int(3 / lr), at_solution=True)
        offset.append(_distance(state.x, k.x_star))
    ratio = offset[0] / offset[1]
    if case.biased_limit is not None:
        _require(offset[1] > 1e-2 and 0.8 < ratio < 1.25, f"{case.name} says biased_limit={case.biased_limit}: four local steps settle "
                 f"away from the solution, and half the step size does not help; it is {offset[0]:.3g} and {offset[1]:.3g} away")
        return
    _require(offset[0] > 1e-5, f"{case.name} does not say exact_with_local_steps: four local steps move the solution; they moved it by "
             f"{offset[0]:.3g}: say exact_with_local_steps = True in its class")
    _require(1.6 < ratio < 2.5, f"{case.name}: the offset after four local steps is O(lr) and halves with lr; it is {offset[0]:.3g} and, "
             f"at half the step size, {offset[1]:.3g}")


def converges_to_the_closed_form(case: Case) -> None:
    """With full batches and one local step it ends at the solution; where `biased_limit` is 1, it settles elsewhere."""
    k = case.solved(EQUAL)
    fed, state = case.advance(k, case.lr, 1, None, case.rounds)
    if case.biased_limit == 1:
        after = case.make(case.lr, 1, None).round(fed, state)
        _close(after.x, state.x, f"{case.name} has settled after {case.rounds} rounds", atol=1e-6)
        _require(_distance(state.x, k.x_star) > 1e-2, f"{case.name} says biased_limit=1: it settles away from the solution; it found it")
        return
    _close(state.x, k.x_star, f"{case.name}: {case.rounds} rounds of one local step with full batches end at the solution", atol=1e-6)
    _require(_distance(k.x0, k.x_star) > 0.1, f"{case.name}: the problem starts away from its solution; x0 is {k.x0.tolist()}")
    slope = float(k.gradient(state.x).norm())
    _require(slope < 1e-5, f"{case.name}: the problem's gradient vanishes at its solution; it is {slope:.3g} long there")


def a_constraint_is_met_where_projected_gradient_descent_meets_it(case: Case) -> None:
    """One local step, and several where the method is exact with them: clients that the set holds back do not bias the mean."""
    k = case.solved(EQUAL)
    set_ = box(-10.0, float(k.x_star.max()) - 0.3)
    x = set_(k.x_star)
    for _ in range(4000):
        x = set_(x - 0.05 * k.gradient(x))
    _require(_distance(x, k.x_star) > 0.1, f"{case.name}: a constraint moves the solution; it is {k.x_star.tolist()} and {x.tolist()}")
    held = replace(k, problem=replace(k.problem, project_x=set_), x_star=x)
    exact = case.make(case.lr, 1, None).exact_with_local_steps
    for steps in (1, 3) if exact and not case.memory and k.y_star is None else (1,):
        # where a second variable has to follow, it runs as long as it needs; else the solution stays in place
        _, state = case.advance(held, case.lr, steps, None, case.rounds if k.y_star is not None else 3, at_solution=True)
        _close(state.x, x, f"{case.name}: over a set that holds x back, {steps} local steps with full batches stay where projected "
               "gradient descent ends. Project before a gradient is taken, and the mean; do not project what is averaged", atol=1e-6)


def engines_agree(case: Case, batch: int | None = None, clients_per_round: int | None = None) -> None:
    """loop, vectorised and wire end at the same point with the same ledger; loop and wire bit for bit, over a network with faults too."""
    k = case.solved()
    engines: dict[str, Any] = {name: name for name in ("loop", "vectorised", "wire")}
    if clients_per_round is not None:
        engines["wire, with faults"] = FaultyWire()
    runs = {name: case.advance(k, case.lr, STEPS, batch, 4, engine=engine, clients_per_round=clients_per_round, weights="samples", seed=7)
            for name, engine in engines.items()}
    loop, state = runs["loop"]
    for engine, (fed, other) in runs.items():
        if engine.startswith("wire"):
            _same(other.x, state.x, f"{case.name} gives the same x, bit for bit, on the engines loop and {engine}")
        else:
            _close(other.x, state.x, f"{case.name} gives the same x on the engines loop and {engine}", rtol=1e-10, atol=1e-12)
        _same_ledger(fed, loop, f"{case.name} has the same ledger on the engines loop and {engine}")
    _require(loop.ledger["train"].samples > 0, f"{case.name}: clients draw samples, which the ledger counts; it has counted none")


def permuting_clients_changes_nothing(case: Case) -> None:
    """What a client draws follows its name, and no client is special for its place in the list."""
    k = case.solved()
    names = [k.data.names[i] for i in (2, 0, 3, 1)]
    parts = {name: k.data.part(i).fields for i, name in enumerate(k.data.names)}
    shuffled = replace(k, data=Data.from_parts({name: parts[name] for name in names}))
    for clients_per_round in (None, COHORT):
        _, a = case.advance(k, case.lr, 2, BATCH, 3, clients_per_round=clients_per_round, engine="loop")
        _, b = case.advance(shuffled, case.lr, 2, BATCH, 3, clients_per_round=clients_per_round, engine="loop")
        _close(b.x, a.x, f"{case.name} gives the same x when the same clients are listed in another order", rtol=1e-10, atol=1e-12)


def identical_clients_are_one_client(case: Case) -> None:
    """With full batches, three copies of a client do what the one does."""
    k = case.solved()
    part = k.data.part(1).fields
    _, a = case.advance(_with_parts(k, {"only": part}), case.lr, STEPS, None, 3)
    _, b = case.advance(_with_parts(k, {f"copy-{i}": part for i in range(3)}), case.lr, STEPS, None, 3, engine="loop")
    _close(b.x, a.x, f"{case.name} does with three clients of the same rows, and full batches, what it does with one of them",
           rtol=1e-10, atol=1e-12)


def a_client_of_weight_two_counts_as_two(case: Case) -> None:
    """With full batches, a client of weight 2 does what it and its copy, of weight 1 each, do."""
    k = case.solved()
    first, second = (k.data.part(i).fields for i in (0, 1))
    _, a = case.advance(_with_parts(k, {"first": first, "second": second}), case.lr, STEPS, None, 3, engine="loop", weights=[2.0, 1.0])
    _, b = case.advance(_with_parts(k, {"first": first, "copy": first, "second": second}), case.lr, STEPS, None, 3, engine="loop")
    _close(a.x, b.x, f"{case.name} does with a client of weight 2, and full batches, what it does with two such clients of weight 1. Take "
           "S.mean(…), which is weighted, rather than a sum over the number of clients", rtol=1e-10, atol=1e-12)


def ledger_is_the_papers_formula(case: Case, steps: int = 1, clients_per_round: int | None = None) -> None:
    """A round that is not the first costs each of its clients what `communication` says, and the other clients nothing."""
    k = case.solved()
    fed, state = case.advance(k, case.lr, steps, None, 1, engine="loop", clients_per_round=clients_per_round)
    before = vars(fed.ledger["train"]).copy()
    case.make(case.lr, steps, None).round(fed, state)
    after = vars(fed.ledger["train"])
    exchanges, up, down = case.communication(len(k.x_star), 0 if k.y_star is None else len(k.y_star), steps)
    clients, size = clients_per_round or fed.population, k.x_star.element_size()
    said = {"exchanges": exchanges, "floats_up": up * clients, "floats_down": down * clients, "bytes_up": size * up * clients}
    counted = {name: after[name] - before[name] for name in said}
    _require(counted == said, f"{case.name}: a round of {steps} local steps with {clients} of {fed.population} clients costs what its "
             f"formula says, {said}; the ledger has counted {counted}")


def resumed_run_ends_bit_for_bit_the_same(case: Case, engine: str = "loop", clients_per_round: int | None = None) -> None:
    """A run that is saved in the middle and loaded into a new federation ends where the whole run ends, with the same ledger."""
    k = case.solved()
    algorithm = case.make(case.lr, STEPS, BATCH)
    fed, whole = case.advance(k, case.lr, STEPS, BATCH, 4, engine=engine, clients_per_round=clients_per_round)
    with TemporaryDirectory() as folder:
        def federation() -> Federation[Problem]:
            return case.federation(k, engine=Wire(folder) if engine == "wire" else engine, clients_per_round=clients_per_round)

        first, second = federation(), federation()
        state = case.init(algorithm, first, k)
        for _ in range(2):
            state = algorithm.round(first, state)
        save(Path(folder) / "half.ckpt", algorithm, first, state)
        state = load(Path(folder) / "half.ckpt", algorithm, second)
        for _ in range(2):
            state = algorithm.round(second, state)
    _same(state.x, whole.x, f"{case.name}, saved after two rounds and loaded into a new federation, ends bit for bit as the whole run "
          "does: what one round hands to the next stands in its State")
    _same_ledger(second, fed, f"{case.name}, saved after two rounds and loaded into a new federation, has the ledger of the whole run")


def noise_of_small_batches_does_not_bias_the_mean_direction(case: Case) -> None:
    """From the solution, over many seeds, the mean move is small against a single one."""
    k, seeds = case.solved(), 40
    ends = [case.advance(k, 0.01, 1, BATCH, 1, at_solution=True, seed=s, engine="loop")[1].x for s in range(seeds)]
    moves = torch.stack(ends) - k.x_star
    spread = float(moves.std(0).norm())
    _require(spread > 1e-6, f"{case.name}: small batches are noisy; over {seeds} seeds x spreads by {spread:.3g}")
    mean = float(moves.mean(0).norm())
    _require(mean < 4 * spread / seeds**0.5, f"{case.name}: small batches from the solution move x by nothing in the mean; over {seeds} "
             f"seeds it is {mean:.3g}, where single moves spread by {spread:.3g}. If this is by design, say biased_batches=True")


def a_second_client_is_refused(case: Case) -> None:
    """A method of one machine says so, where it would otherwise run on many and do something else."""
    k = case.solved()
    part = k.data.part(0).fields
    two = _with_parts(k, {"one": part, "two": part})
    try:
        case.init(case.make(case.lr, 1, None), case.federation(two), two)
    except AlgorithmError:
        return
    raise AssertionError(f"{case.name} is a method of one machine: its init refuses a federation of two clients, with an AlgorithmError; "
                         "it took it")


def _with_parts(k: TestProblem, parts: dict[str, dict[str, Tensor]]) -> TestProblem:
    return replace(k, data=Data.from_parts(parts))


def _distance(x: Tensor, y: Tensor) -> float:
    return float((x - y).norm())


def _require(holds: bool, law: str) -> None:
    if not holds:
        raise AssertionError(law)


def _close(got: Tensor, expected: Tensor, law: str, atol: float, rtol: float = 0.0) -> None:
    torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, msg=lambda found: f"{law}.\n{found}")


def _same(got: Tensor, expected: Tensor, law: str) -> None:
    _require(torch.equal(got, expected), f"{law}; they are {_distance(got, expected):.3g} apart")


def _same_ledger(fed: Federation[Problem], other: Federation[Problem], law: str) -> None:
    counts: list[dict[str, Any]] = [f.ledger.to_json() for f in (fed, other)]
    _require(fed.ledger == other.ledger, f"{law}; they have {counts[0]['train']} and {counts[1]['train']}")
