"""What came out on test rows: intervals from a paired bootstrap, and whether nesting paid, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .measures import Measure, Scored

DRAWS = 400
Found = tuple[float, float, float]
"""A value with the ends of its 95 % interval."""


@dataclass(frozen=True)
class Tested:
    """Every model's value on the test rows, and what it has more than the first one, both with intervals."""

    values: dict[str, Found]
    draws: dict[str, NDArray[np.float64]]

    def joined(self, other: Tested) -> Tested:
        """This one with further models, on the same rows in the same draws."""
        return Tested(self.values | other.values, self.draws | other.draws)

    def difference(self, label: str, to: str) -> Found:
        """What a model has more than another on the same rows."""
        draws = self.draws[label] - self.draws[to]
        return self.values[label][0] - self.values[to][0], *ends(draws)


def bootstrapped(measure: Measure, scored: Mapping[str, Scored], units: NDArray[np.int64] | None = None, seed: int = 0,
                 draws: int = DRAWS) -> Tested:
    """Test all models on the same rows, drawn anew many times: whole units, such as patients, where `units` numbers them."""
    rows = len(next(iter(scored.values())).labels)
    place = np.arange(rows) if units is None else np.unique(units, return_inverse=True)[1]
    number, r = int(place.max()) + 1, np.random.default_rng(seed)
    weights = [np.bincount(r.integers(number, size=number), minlength=number).astype(float)[place] for _ in range(draws)]
    found = {label: np.asarray([measure.of_rows(own, w) for w in weights]) for label, own in scored.items()}
    return Tested({label: (measure.of_rows(own), *ends(found[label])) for label, own in scored.items()}, found)


def ends(draws: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of the 95 % interval of values that were drawn."""
    known = draws[~np.isnan(draws)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def sentence(metric: str, nested: str | None, other: str, kept: str, tested: Tested, rows: int) -> str:
    """Whether nesting paid here and by how much, and which model was kept.

    nested, other: the best of the nested methods and of their opponents, both by validation rows
    """
    keeps = f"Kept, as the best on validation rows: {kept}."
    if nested is None:
        return f"There is no nested method for this goal on these rows. {keeps}"
    gain, low, high = tested.difference(nested, other)
    if gain == low == high == 0:
        return f"Nesting changed nothing here: on all {rows} test rows {nested} and {other} do the same. {keeps}"
    by = (f"{nested} has a test {metric} of {tested.values[nested][0]:.3f}, {abs(gain):.3f} {'more' if gain >= 0 else 'less'} than "
          f"{other} (95 % interval of the difference {low:+.3f} to {high:+.3f}, {rows} rows)")
    if low > 0:
        return f"Nesting paid here: {by}. {keeps}"
    if high < 0:
        return f"Nesting did not pay here: {by}. {keeps}"
    return f"Whether nesting pays here these rows do not tell: {by}. {keeps}"
