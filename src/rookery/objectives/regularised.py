"""Terms added to an objective, so that no algorithm needs an option for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Minimization


def with_weight_decay(problem: Minimization, weight: float) -> Minimization:
    """The problem with (weight/2)‖x‖² added to f, over all of x; its hand-written oracles, projections and set-up sums stay right.

    >>> import torch
    >>> decayed = with_weight_decay(Minimization(lambda x, b: x.sum()), 0.5)
    >>> decayed.gradient(torch.tensor([2.0, -4.0]), Batch({}))
    tensor([ 2., -1.])
    """
    if type(problem) is not Minimization:  # what else a kind of one's own computes would miss the term
        raise ProblemError(f"with_weight_decay takes a Minimization; got {type(problem).__name__}: add the term to its own losses, "
                           "f or h")
    if not weight >= 0:
        raise ProblemError(f"weight must not be negative; got {weight}")
    f, finish = problem.f, problem.finish

    def decayed(x: Tensor, b: Batch) -> Tensor:
        return f(x, b) + 0.5 * weight * x.square().sum()

    def with_term(oracle: Callable[..., Tensor], term: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        return lambda x, b: oracle(x, b) + term(x)

    terms: dict[str, Callable[[Tensor], Tensor]] = {"value": lambda x: 0.5 * weight * x.square().sum(), "gradient": lambda x: weight * x}
    return replace(problem, f=decayed, oracles={name: with_term(oracle, terms[name]) for name, oracle in problem.oracles.items()},
                   finish=None if finish is None else lambda total: with_weight_decay(finish(total), weight))  # type: ignore[arg-type]
