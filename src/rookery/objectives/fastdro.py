"""The worst case over a batch's weights, solved exactly: a plain minimisation whose gradient treats the weights as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..problem import Minimization
from .dro import Losses, per_row

Form = Literal["cvar", "chi2", "chi2 ball", "kl"]
HALVINGS = 60  # of an interval: to the last bit of a double


def fast_dro(losses: Losses, form: Form, size: float, **options: Any) -> Minimization:
    """max_p Σ p_i ℓ_i − penalty(p) over the weights p of a batch's m rows, by Danskin's theorem with gradient Σ p_i ∇ℓ_i.

    form, size:  "cvar", a: p_i ≤ 1/(am);   "chi2", λ: λ/(2m)‖mp − 1‖²;   "chi2 ball", ρ: ‖mp − 1‖²/(2m) ≤ ρ;   "kl", λ: λ Σ p_i log(mp_i)
    `losses(x, batch)` → one loss per row. The worst case of a batch lies below that of all rows, by a bias that falls with m.
    Reference: Levy, Carmon, Duchi, Sidford, "Large-scale methods for distributionally robust optimization", NeurIPS 2020.

    >>> worst = fast_dro(lambda x, b: b.a * x, "cvar", 0.5)
    >>> worst.gradient(torch.ones(1), Batch({"a": torch.tensor([1.0, 2.0, 4.0, 3.0])}))
    tensor([3.5000])
    """
    if form not in ("cvar", "chi2", "chi2 ball", "kl"):
        raise ProblemError(f'form is "cvar", "chi2", "chi2 ball" or "kl"; got {form!r}')
    if not size > 0 or (form == "cvar" and size > 1):
        raise ProblemError(f"size must be {'a share in (0, 1]' if form == 'cvar' else 'positive'}; got {size}")

    each = per_row(losses)

    def f(x: Tensor, b: Batch) -> Tensor:
        v = each(x, b)
        p = worst_weights(v.detach(), form, size)
        return p @ v - penalty(p, form, size)

    return Minimization(f, **options)


def worst_weights(v: Tensor, form: Form, size: float) -> Tensor:
    """The maximiser p of Σ p_i v_i − penalty(p).

    >>> worst_weights(torch.tensor([1.0, 2.0, 4.0, 3.0]), "cvar", 0.375)
    tensor([0.0000, 0.0000, 0.6667, 0.3333])
    """
    m = len(v)
    if form == "kl":
        return torch.softmax(v / size, 0)
    if form == "cvar":
        rank = torch.argsort(torch.argsort(v, descending=True)).to(v.dtype)
        return (size * m - rank).clamp(0, 1) / (size * m)
    mean, top = v.mean(), v.amax()
    if form == "chi2":  # p_i = (v_i − e)₊/(λm)
        return _normalised(v, _bisect(lambda e: (v - e).clamp(min=0).mean() < size, mean - size, top))
    # p ∝ (v − e)₊ with divergence ρ; if no weight is 0, e is the low end
    low = mean - ((v - mean).square().mean() / (2 * size)).sqrt()
    return _normalised(v, _bisect(lambda e: _divergence(_normalised(v, e)) > size, low, top))


def penalty(p: Tensor, form: Form, size: float) -> Tensor:
    match form:
        case "chi2":
            return size * _divergence(p)
        case "kl":
            return size * torch.xlogy(p, len(p) * p).sum()
    return torch.zeros((), dtype=p.dtype, device=p.device)


def _divergence(p: Tensor) -> Tensor:
    return (len(p) * p - 1).square().sum() / (2 * len(p))


def _normalised(v: Tensor, e: Tensor) -> Tensor:
    above = (v - e).clamp(min=0) + torch.finfo(v.dtype).tiny  # equal losses leave nothing above e: then equal weights
    return above / above.sum()


def _bisect(too_high: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Where `too_high` begins to hold, approached from below; always as many halvings, so that it vectorises."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = too_high(middle) | (middle >= high)  # the last halvings round to the end itself
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return low
