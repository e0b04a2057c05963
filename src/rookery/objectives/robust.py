"""Robust objectives without an exponential: variance, χ² and CVaR. `losses(x, batch)` → one loss per row, everywhere."""

from __future__ import annotations

from typing import Any, Literal, overload

from torch import Tensor
from torch.nn import functional as F

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Compositional, Minimization
from .declare import objective
from .dro import Losses, per_row
from .given import with_zeros


@objective(metric="worst class")
def mean_variance(losses: Losses, weight: float = 1.0, **options: Any) -> Compositional:
    """mean ℓ + weight·Var ℓ over all rows of the federation: h = mean(ℓ + weight·ℓ²), g = mean ℓ, f(g) = −weight·g².

    The variance is that of the federation's mixture, so differences between clients are part of it.
    Reference: Maurer, Pontil, "Empirical Bernstein bounds and sample variance penalization", COLT 2009, for the objective.

    >>> import torch
    >>> problem = mean_variance(lambda x, b: x * b.a, 0.5)
    >>> x, rows = torch.ones(1), Batch({"a": torch.tensor([1.0, 3.0])})
    >>> problem.h(x, rows) + problem.f(problem.g(x, rows))
    tensor(2.5000)
    """
    if not weight >= 0:
        raise ProblemError(f"weight must not be negative; got {weight}")

    each = per_row(losses)

    def h(x: Tensor, b: Batch) -> Tensor:
        ell = each(x, b)
        return (ell + weight * ell.square()).mean()

    return Compositional(lambda z: -weight * z.square().sum(), lambda x, b: each(x, b).mean().reshape(1), h, **options)


@overload
def chi2_dro(losses: Losses, lam: float = ..., form: Literal["variance"] = ..., **options: Any) -> Compositional: ...
@overload
def chi2_dro(losses: Losses, lam: float = ..., *, form: Literal["dual"], **options: Any) -> Minimization: ...
@objective(metric="worst class", x=with_zeros(lambda given: int(given.entries["form"] == "dual"), "with form = \"dual\" the level e"))
def chi2_dro(losses: Losses, lam: float = 1.0, form: Literal["variance", "dual"] = "variance",
             **options: Any) -> Compositional | Minimization:
    """χ²-regularised DRO, max_p Σ p_i ℓ_i − λ(m/2) Σ (p_i − 1/m)² over the weights p of all m rows, in two forms.

    form="variance":  mean ℓ + Var ℓ/(2λ), a composition; exact where no loss lies more than λ below the mean, too large elsewhere.
    form="dual":      min over e of e + λ/2 + mean (ℓ − e)₊²/(2λ), exact everywhere, a plain minimisation. The last coordinate of x is
                      e, and `losses` gets the others; start with `torch.cat([x, x.new_zeros(1)])`. At the best e, mean (ℓ − e)₊ = λ.

    Reference: FedDRO, equation (5), whose two signs are exchanged: as printed, minimising it would maximise the variance.

    >>> import torch
    >>> rows = Batch({"a": torch.tensor([1.0, 3.0])})
    >>> chi2_dro(lambda x, b: b.a, lam=2.0, form="dual").f(torch.zeros(1), rows)  # e = mean − λ = 0 is the best one: 2 + 1/4
    tensor(2.2500)
    """
    if not lam > 0:
        raise ProblemError(f"lam must be positive; got {lam}")
    if form == "variance":
        return mean_variance(losses, 1 / (2 * lam), **options)
    if form != "dual":
        raise ProblemError(f'form is "variance" or "dual"; got {form!r}')

    each = per_row(losses)

    def f(x: Tensor, b: Batch) -> Tensor:
        return x[-1] + lam / 2 + (each(x[:-1], b) - x[-1]).clamp_min(0).square().mean() / (2 * lam)

    return Minimization(f, **options)


@objective(metric="worst class", x=with_zeros(lambda given: 1, "the level e"))
def cvar(losses: Losses, share: float = 0.1, temperature: float = 0.01, **options: Any) -> Minimization:
    """Mean of the worst `share` of the rows, min over e of e + mean (ℓ − e)₊/share, with τ·softplus(·/τ) for the positive part.

    The last coordinate of x is e, and `losses` gets the others; start with `torch.cat([x, x.new_zeros(1)])`. The smoothing, with
    τ = `temperature` in units of the loss, adds at most τ·log 2/share.
    Reference: Rockafellar, Uryasev, "Optimization of conditional value-at-risk", Journal of Risk 2000.

    >>> import torch
    >>> rows = Batch({"a": torch.tensor([1.0, 2.0, 3.0, 5.0])})
    >>> cvar(lambda x, b: b.a, 0.5, 1e-4).f(torch.tensor([2.5]), rows)  # the mean of 3 and 5
    tensor(4.)
    """
    if not 0 < share <= 1:
        raise ProblemError(f"share is the part of the rows that counts, in (0, 1]; got {share}")
    if not temperature > 0:
        raise ProblemError(f"temperature must be positive; got {temperature}")

    each = per_row(losses)

    def f(x: Tensor, b: Batch) -> Tensor:
        return x[-1] + temperature * F.softplus((each(x[:-1], b) - x[-1]) / temperature).mean() / share

    return Minimization(f, **options)
