"""The worst case over a batch's weights, solved exactly: a plain minimisation whose gradient treats the weights as constants.

The maximiser p follows from one threshold e of the losses v, under probabilities q of the rows (1/m in a batch of m):
    cvar       p_i = q_i/a above e, 0 below, and what is left on the rows at e
    chi2       p_i = q_i (v_i − e)₊/λ, with Σp = 1
    chi2 ball  p_i ∝ q_i (v_i − e)₊, with the divergence ρ
    kl         p_i ∝ q_i exp((v_i − e)/λ) for any e; the largest loss keeps the exponential in range
`worst_weights` has the losses of one batch. Several clients find e together from sums over theirs: `statistics`, `reached`, `row_weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..federation.oracles import MinimizationClient
from ..problems.autodiff import vjp
from ..problems.kinds import Minimization
from .declare import objective
from .dro import Losses, per_row

Form = Literal["cvar", "chi2", "chi2 ball", "kl"]
HALVINGS = 60  # of an interval: to the last bit of a double


@dataclass(frozen=True, eq=False, kw_only=True)
class WorstCase(Minimization):
    """The worst case over the rows' weights; f is that of one batch, `losses` are what FastDRO pools over the clients."""

    ORACLES: ClassVar[tuple[str, ...]] = (*Minimization.ORACLES, "losses", "losses_vjp")
    each: Losses
    form: Form
    size: float

    def losses(self, x: Tensor, b: Batch) -> Tensor:
        return self.each(x, b)

    def losses_vjp(self, x: Tensor, b: Batch, w: Tensor) -> Tensor:
        """Σ_i w_i ∇ℓ_i(x)"""
        return vjp(lambda z: self.each(z, b), x, w)


class WorstCaseClient(MinimizationClient, Protocol):
    """A client of a `WorstCase`."""

    @property
    def problem(self) -> WorstCase: ...

    def losses(self, x: Tensor, b: Batch) -> Tensor: ...

    def losses_vjp(self, x: Tensor, b: Batch, w: Tensor) -> Tensor: ...


@objective(metric="worst class")
def fast_dro(losses: Losses, form: Form, size: float, **options: Any) -> WorstCase:
    """max_p Σ p_i ℓ_i − penalty(p) over the weights p of a batch's m rows, by Danskin's theorem with gradient Σ p_i ∇ℓ_i.

    form, size:  "cvar", a: p_i ≤ 1/(am);   "chi2", λ: λ/(2m)‖mp − 1‖²;   "chi2 ball", ρ: ‖mp − 1‖²/(2m) ≤ ρ;   "kl", λ: λ Σ p_i log(mp_i)
    `losses(x, batch)` → one loss per row. The worst case of a batch lies below that of all rows, by a bias that falls with m.
    FastDRO pools the rows of all clients into one batch; other methods see the mean of the clients' own worst cases.
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

    return WorstCase(f, each=each, form=form, size=size, **options)


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


def statistics(v: Tensor, q: Tensor, levels: Tensor, form: Form) -> Tensor:
    """What a client's losses v add at each level e: the share above it, Σq(v − e)₊, Σq(v − e)₊², as far as the form needs them."""
    over = v[:, None] - levels
    found = [q @ (over > 0).to(v.dtype)]
    if form in ("chi2", "chi2 ball"):
        found.append(q @ over.clamp(min=0))
    if form == "chi2 ball":
        found.append(q @ over.clamp(min=0).square())
    return torch.stack(found)


def reached(found: Tensor, form: Form, size: float) -> Tensor:
    """At which levels the threshold is reached or exceeded, from `statistics` averaged over the clients. True above a false never ends."""
    share = found[0]
    match form:
        case "cvar":
            return share <= size
        case "kl":
            return share <= 0
        case "chi2":
            return found[1] < size
    return (share <= 0) | (found[2] > (1 + 2 * size) * found[1].square())


def row_weights(v: Tensor, q: Tensor, bounds: Tensor, form: Form, size: float) -> Tensor:
    """The worst-case weights up to a factor; `bounds` are two levels around the threshold and the shares of rows above each."""
    low, high, above_low, above_high = bounds.unbind()
    if form == "cvar":
        rest = (size - above_high) / (above_low - above_high).clamp(min=torch.finfo(v.dtype).tiny)
        return q * torch.where(v > high, 1.0, torch.where(v > low, rest.clamp(0, 1), 0.0))
    if form == "kl":  # no row that counts is above the bounds; one without weight must not overflow
        return q * ((v - low).clamp(max=0) / size).exp()
    return q * (v - low).clamp(min=0)


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
