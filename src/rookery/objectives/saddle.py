"""The worst group as a saddle point: the groups' weights as a dual variable."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Compositional, Minimax
from ..problems.projections import simplex
from .declare import objective
from .given import Given, constant
from .groups import group_dro


def _groups(given: Given) -> int:
    return given.count(given.entries["field"])


@objective(metric="worst class", through=group_dro, y=constant(lambda given: 1 / _groups(given), _groups, "equal weights of all groups"))
def group_weights(problem: Compositional, lam: float = 0.0) -> Minimax:
    """min_x max_p Σ_j p_j g_j(x) − λ Σ_j p_j log(d_g p_j) + h(x) over the simplex: what `group_dro` is with the maximum carried out.

    `problem` gives g, the groups' losses, and h; its f, which is λ·log mean_j exp(g_j/λ) in `group_dro`, is not used. lam=0 is the
    largest group loss itself. PDSGD (DRO) runs on it.
    Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally robust neural networks", ICLR 2020, Section 4.

    >>> p = group_weights(Compositional(lambda z: z.sum(), lambda x, b: x))
    >>> p.f_y(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5]), Batch({}))
    tensor([1., 2.])
    """
    if not isinstance(problem, Compositional) or not problem.shared:
        raise ProblemError(f"group_weights takes a shared composition, whose g are the groups' losses; got {type(problem).__name__}")
    if not lam >= 0:
        raise ProblemError(f"lam must not be negative; got {lam}")
    finish = problem.finish

    def f(x: Tensor, p: Tensor, b: Batch) -> Tensor:
        g = problem.g(x, b)
        if g.shape != p.shape:
            raise ProblemError(f"one weight for each of the {len(g)} groups is needed; got {len(p)}")
        value = p @ g + problem.h_value(x, b)
        q = p.clamp_min(torch.finfo(p.dtype).tiny)  # p log p is 0 at the border of the simplex
        return value - lam * (q * torch.log(len(p) * q)).sum() if lam else value

    agreed: dict[str, Any] = {} if finish is None else {"statistics": problem.statistics, "weighted": problem.weighted,
                                                        "finish": lambda total: group_weights(finish(total), lam)}  # type: ignore[arg-type]
    return Minimax(f, sampling=problem.sampling, project_x=problem.project_x, project_y=simplex, model=problem.model,
                   stochastic=problem.stochastic, **agreed)
