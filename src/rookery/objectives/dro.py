"""Distributionally robust objectives with an exponential, as compositions, and a report of where they leave its range."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.store import Batch
from ..errors import ProblemError
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.program import Program
from ..problems.base import Problem
from ..problems.kinds import Compositional
from ..problems.model import Model
from .declare import objective
from .given import with_zeros

Losses = Callable[[Tensor, Batch], Tensor]
EDGE = 60.0  # of exponents: beyond exp(60) float32 would overflow


def per_row(values: Losses, name: str = "losses") -> Losses:
    """The same function, refused where it does not give one number for each row of a batch."""
    if isinstance(values, Model | torch.nn.Module):
        raise ProblemError(f"{name} are a function of x and a batch, one number a row; got a {type(values).__name__}: write "
                           "cross_entropy_losses(model), or a function of your own that calls model(x, batch.inputs)")

    def checked(x: Tensor, b: Batch) -> Tensor:
        found = values(x, b)
        return one_a_row(found, len(next(iter(b.fields.values()))) if b.fields else len(found), name)

    return checked


def one_a_row(found: Tensor, rows: int, name: str = "losses") -> Tensor:
    if found.shape != (rows,):
        remedy = "leave out the mean over rows" if found.dim() == 0 else f"write {name}[:, 0] for one column"
        raise ProblemError(f"{name} must return one number for each of a batch's {rows} rows; got shape {tuple(found.shape)}: {remedy}")
    return found


class ClampWarning(UserWarning):
    """An exponential or a logarithm of a robust objective is out of its range, and a continuation stands for it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Exponential(Compositional):
    """A composition whose g begins with mean exp(u); `exponents(x, batch)` → u, one a row; that mean is never below `floor`."""

    exponents: Losses
    floor: float

    def count(self, x: Tensor, b: Batch) -> Tensor:
        """Rows beyond the edge, and all rows."""
        u = self.exponents(x, b)
        return torch.stack([(u > EDGE).sum().to(x.dtype), x.new_tensor(float(len(u)))])


@dataclass(frozen=True)
class _Count(Program):
    """The client function of `dro_report`."""

    def beyond(self, c: Client, x: Tensor) -> Tensor:
        assert isinstance(c.problem, Exponential)
        return c.evaluate(c.problem.count, x, c.draw())


def dro_report(fed: Federation[Problem], x: Tensor, y: Tensor | None = None) -> dict[str, float]:
    """How much of a robust objective is clamped at x: `clamped`, rows beyond the edge; `floored`, 1 if the estimate y is below its floor.

    Two numbers a client in one exchange, booked as evaluation; oracles count nothing. What is clamped is warned of (`ClampWarning`).
    Use it in a run's evaluation: `evaluate=lambda s: metrics(s) | dro_report(fed, s.x, s.y)`.
    """
    problem = fed.problem
    if not isinstance(problem, Exponential):
        raise ProblemError(f"dro_report looks into the problems of kl_dro and constrained_dro; this is a {type(problem).__name__} without "
                           "an exponential: leave the report out")
    with fed.phase("evaluation"):
        clamped, rows = fed.sum(fed.map(_Count().beyond, fed.broadcast(x))).tolist()
    estimate = math.inf if y is None else float(y[0])
    floored = estimate < problem.floor
    if clamped:
        warnings.warn(f"{clamped:.0f} of {rows:.0f} rows lie beyond the range of the exponential and pull less than they should: "
                      "call prepare at this point, which moves the shift, or take a larger lam", ClampWarning, stacklevel=2)
    if floored:
        warnings.warn(f"the estimate y = {estimate:.3g} lies below {problem.floor:.3g}, the least that g can be, where the "
                      "logarithm is continued by its tangent: take a larger beta or batch, or a smaller lr", ClampWarning, stacklevel=2)
    return {"clamped": clamped, "floored": float(floored)}


@objective(metric="worst class", report=dro_report)
def kl_dro(losses: Losses, lam: float = 1.0, shift: float | None = None, least: float = 0.0, **options: Any) -> Exponential:
    """KL-regularised DRO: λ·log mean exp(ℓ/λ), the worst case of Σ p_i ℓ_i − λ·KL(p, 1/m) over the weights p.

    `losses(x, batch)` → one loss per row. As a composition g = mean exp(ℓ/λ − s), f = λ(log g + s), h = 0. The shift s keeps the
    exponential in range; it is agreed by `prepare` (the mean of ℓ/λ at the starting point) and fixed for the run, or given.
    `least` is the smallest a loss can be: an estimate of g below exp(least/λ − s) is out of its range, and is floored there.
    `dro_report` counts what is clamped. Reference: FedDRO, equation (4), here with the factor λ, so that the value is the DRO value.

    >>> problem = kl_dro(lambda x, b: x * b.a, lam=0.5, shift=0.0)
    >>> problem.f(problem.g(torch.ones(1), Batch({"a": torch.tensor([0.0, 1.0])})))
    tensor(0.7169)
    """
    if not 0 < lam < math.inf:
        raise ProblemError(f"lam must be positive and finite; got {lam}")
    each = per_row(losses)
    s = 0.0 if shift is None else shift
    # a tracked estimate of g may leave its range; below the floor the logarithm is continued by its tangent
    floor = math.exp(min(max(least / lam - s, -EDGE), EDGE))

    def exponents(x: Tensor, b: Batch) -> Tensor:
        return each(x, b) / lam - s

    def g(x: Tensor, b: Batch) -> Tensor:
        return bounded_exp(exponents(x, b)).mean().reshape(1)

    def f(z: Tensor) -> Tensor:
        return (lam * (bounded_log(z, floor) + s)).sum()

    def f_gradient(z: Tensor, b: Batch | None = None) -> Tensor:
        return lam / z.clamp(min=floor)

    def statistics(x: Tensor, b: Batch) -> Tensor:
        return _sums(each(x, b), least)

    def finish(total: Tensor) -> Exponential:
        return kl_dro(losses, lam, _centre(total, least, "kl_dro") / lam, least, **options)

    agreed: dict[str, Any] = {} if shift is not None else {"statistics": statistics, "finish": finish}
    oracles = {"f_gradient": f_gradient, **options.get("oracles", {})}
    return Exponential(f, g, exponents=exponents, floor=floor, **agreed, **options | {"oracles": oracles})


@objective(metric="worst class", x=with_zeros(lambda given: 1, "the multiplier's coordinate"), report=dro_report)
def constrained_dro(losses: Losses, rho: float = 0.5, least_lam: float = 0.1, centre: float | None = None, least: float = 0.0,
                    **options: Any) -> Exponential:
    """The worst mean over a KL ball, max Σ p_i ℓ_i over KL(p, 1/m) ≤ ρ, as min over λ ≥ λ_min of λρ + λ·log mean exp(ℓ/λ).

    The last coordinate of x is the multiplier's: λ = λ_min + softplus(x[-1]), and `losses` gets the others; start with
    `torch.cat([x, x.new_zeros(1)])`. The value is exact if the best λ is above λ_min (`least_lam`), and an upper bound otherwise.
    g = (mean exp((ℓ − c)/λ), λ), f(g) = c + g₂(ρ + log g₁), where c is the mean loss that `prepare` agrees on, or `centre`.
    Beyond the range of the exponential the value is too small and draws λ to λ_min, so `prepare` refuses losses that are more than
    60·λ_min above `least`, the smallest a loss can be; `dro_report` tells of losses that grow there later.
    Reference: Qi, Lyu, Chan, Bai, Yang, "Stochastic constrained DRO with a complexity independent of sample size", TMLR 2023.

    >>> problem = constrained_dro(lambda x, b: b.a, rho=10.0, centre=0.0)
    >>> rows = Batch({"a": torch.tensor([0.0, 1.0])})  # nearly all weight may go to the larger loss
    >>> problem.f(problem.g(torch.tensor([-10.0]), rows)) > 1
    tensor(True)
    """
    if not (rho > 0 and least_lam > 0):
        raise ProblemError(f"rho and least_lam must be positive; got {rho} and {least_lam}")
    each = per_row(losses)
    c = 0.0 if centre is None else centre
    floor = math.exp(min(max((least - c) / least_lam, -EDGE), EDGE))

    def multiplier(x: Tensor) -> Tensor:
        return least_lam + F.softplus(x[-1:])

    def exponents(x: Tensor, b: Batch) -> Tensor:
        return (each(x[:-1], b) - c) / multiplier(x)

    def g(x: Tensor, b: Batch) -> Tensor:
        return torch.cat([bounded_exp(exponents(x, b)).mean().reshape(1), multiplier(x)])

    def f(z: Tensor) -> Tensor:
        return c + z[1] * (rho + bounded_log(z[0], floor))

    def statistics(x: Tensor, b: Batch) -> Tensor:
        ell = each(x[:-1], b)
        return torch.cat([_sums(ell, least), (ell > least + EDGE * least_lam).sum().to(ell.dtype).reshape(1)])

    def finish(total: Tensor) -> Exponential:
        if total[3] > 0:
            raise ProblemError(f"{int(total[3])} losses lie more than {EDGE:.0f}·least_lam above least={least}, where exp(ℓ/least_lam) "
                               f"leaves its range; give a larger least_lam than {least_lam}")
        return constrained_dro(losses, rho, least_lam, _centre(total, least, "constrained_dro"), least, **options)

    agreed: dict[str, Any] = {} if centre is not None else {"statistics": statistics, "finish": finish}
    return Exponential(f, g, exponents=exponents, floor=floor, **agreed, **options)


def bounded_exp(u: Tensor) -> Tensor:
    """exp(u), beyond the edge continued by its tangent, so that the worst rows keep their pull."""
    return torch.exp(u.clamp(max=EDGE)) * (1 + (u - EDGE).clamp(min=0.0))


def bounded_log(z: Tensor, floor: float) -> Tensor:
    """log z, below the floor continued by its tangent."""
    safe = z.clamp(min=floor)
    return torch.log(safe) + torch.where(z < floor, (z - safe) / floor, torch.zeros_like(z))


def _sums(ell: Tensor, least: float) -> Tensor:
    """The losses' sum, their number, and how many lie below `least`."""
    return torch.stack([ell.sum(), ell.new_tensor(float(len(ell))), (ell < least).sum().to(ell.dtype)])


def _centre(total: Tensor, least: float, name: str) -> float:
    """The mean loss from the sums."""
    if total[2] > 0:
        raise ProblemError(f"{int(total[2])} losses lie below least={least}, the smallest that {name} was told of; give it least=…")
    return float(total[0] / total[1])
