"""How much each client counts in a mean, and how likely it is in a cohort that is drawn by weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..data.store import Data
from ..errors import AlgorithmError, WeightError

Floats = NDArray[np.float64]


def client_weights(weights: str | Sequence[float], data: Data) -> Floats:
    """One number per client, from a word or as given."""
    if isinstance(weights, str):
        if weights not in ("equal", "samples"):
            raise WeightError(f'weights are "equal", "samples" or one number per client; got {weights!r}')
        return np.ones(len(data.names)) if weights == "equal" else data.sizes.astype(np.float64)
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (len(data.names),):
        raise WeightError(f"one weight per client is needed: {len(data.names)} clients, weights of shape {array.shape}")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        raise WeightError(f"weights must be finite and not negative; client {data.names[bad[0]]!r} has {array[bad[0]]}")
    if not array.sum() > 0:
        raise WeightError("the weights are all 0; give at least one client a positive weight")
    return array


def inclusion(size: int, weights: Floats, names: Sequence[str]) -> Floats:
    """The probability size·p_k of each client to be in a cohort of `size`; refused where one would have to be in it more than once."""
    likely: Floats = size * weights / weights.sum()
    most = float(likely.max())
    if most > 1 + 1e-9:
        raise AlgorithmError(f"client {names[int(likely.argmax())]!r} has {most / size:.3g} of all weight, too much for a cohort of {size} "
                             f'drawn by weight; draw at most {int(size / most)} clients, or write cohorts="uniform"')
    return likely
