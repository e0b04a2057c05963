"""Randomness without generators: every draw is a pure function of (seed, client name, call, draw).

Nothing has to be saved to resume a run, adding a client changes nobody else's samples, and every engine
draws the same batches. Integers come from splitmix64 used as a hash, Gaussians from NumPy's Philox keyed alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32 = (np.uint64(n) for n in (30, 27, 31, 32))
_LOW = np.uint64(2**32 - 1)


def as_keys(values: object) -> Keys:
    """`values` as an array of 64-bit keys (at least one-dimensional, so that arithmetic wraps silently)."""
    return np.atleast_1d(np.asarray(values, dtype=np.uint64))


def splitmix64(state: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), as a hash of 64-bit words."""
    z = state + _GOLDEN
    z = (z ^ (z >> _S30)) * _A
    z = (z ^ (z >> _S27)) * _B
    return z ^ (z >> _S31)


def combine(key: Keys, *parts: object) -> Keys:
    """Hash `parts` into `key`, one after the other; shapes broadcast."""
    for part in parts:
        key = splitmix64(key ^ splitmix64(as_keys(part)))
    return key


def counting(count: int) -> Keys:
    """0, 1, …, count − 1 as keys."""
    return np.arange(count, dtype=np.uint64)


def name_key(name: str) -> int:
    """A 64-bit key for a client's name: its stream follows the name, not its place in a list."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def below(bits: Keys, bound: object) -> NDArray[np.int64]:
    """Integers in [0, bound) from hashed keys, for bounds below 2**32 (bias below bound / 2**32)."""
    return (((bits >> _S32) * as_keys(bound)) >> _S32).astype(np.int64)


def uniform_index(keys: Keys, draws: Sequence[int] | NDArray[np.int64], size: int, bound: object) -> NDArray[np.int64]:
    """`(clients, draws, size)` integers below each client's `bound`.

    >>> uniform_index(as_keys([1, 2]), [0], 3, [[[10]], [[10]]]).shape
    (2, 1, 3)
    """
    base = combine(keys[:, None, None], np.asarray(draws, dtype=np.uint64)[None, :, None])
    return below(splitmix64(base + counting(size)), bound)


def hidden(secret: int, *parts: int | str, words: int = 1) -> Keys:
    """64-bit words that nobody foresees without the secret, and of which none tells of another or of the secret: SHAKE-256 of both.

    >>> hidden(7, "a", 1, words=2)[0] == hidden(7, "a", 1)[0] != hidden(8, "a", 1)[0]
    np.True_
    """
    said = secret.to_bytes(16, "little") + repr(parts).encode()
    return np.frombuffer(hashlib.shake_256(said).digest(8 * words), dtype="<u8").astype(np.uint64)


def uniform(keys: Keys, size: int, secret: int = 0) -> NDArray[np.float64]:
    """`(keys, size)` numbers strictly between 0 and 1, multiples of 2**-53; under a secret, such that none tells of another.

    >>> float(abs(uniform(as_keys([7]), 100_000).mean() - 0.5)) < 0.005
    True
    """
    bits: Keys = splitmix64(combine(keys)[:, None] + counting(size)) if not secret else \
        np.concatenate([hidden(secret, "uniform", int(key), words=size) for key in keys] or [as_keys([])]).reshape(len(keys), size)
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def permuted_index(key: Keys, count: int) -> NDArray[np.int64]:
    """A permutation of `range(count)` for each key: rows ranked by their hash. Shape `(keys, count)`."""
    return np.argsort(splitmix64(combine(key)[:, None] + counting(count)), axis=1, kind="stable")


def distinct_index(keys: Keys, size: int, number: NDArray[np.int64]) -> NDArray[np.int64]:
    """`(keys, size)` integers below each key's `number` in random order, none of them twice before all have come.

    Where `size` is larger than `number` they go on in the same order, so that any `number` neighbours differ.

    >>> distinct_index(as_keys([7, 8]), 5, np.array([3, 1000])).tolist()
    [[0, 1, 2, 0, 1], [932, 137, 518, 411, 497]]
    """
    base, out = combine(keys)[:, None], np.empty((len(keys), size), dtype=np.int64)
    many = number < 2 * size  # more than half are wanted: all are put in order; else those that came before are drawn again
    if many.any():
        slots = counting(int(number[many].max()))
        bits = splitmix64(base[many] + slots) >> _S32 << _S32 | slots
        bits[slots >= as_keys(number[many])[:, None]] = np.iinfo(np.uint64).max
        bits.sort(axis=1)
        out[many] = np.take_along_axis(bits, np.arange(size) % number[many, None], 1) & _LOW
    left = np.flatnonzero(~many)
    place, tries = counting(size), 0
    new = np.ones((len(left), size), dtype=np.uint64)
    while len(left):
        redrawn = below(splitmix64(combine(base[left], tries) + place), number[left, None])
        found = np.where(new, redrawn, out[left])
        out[left] = found
        code = found.astype(np.uint64) << _S32 | new << _S31 | place  # of equal ones the new ones come last
        code.sort(axis=1)
        again = code[:, 1:] >> _S32 == code[:, :-1] >> _S32
        new = np.zeros_like(new)
        np.put_along_axis(new, (code[:, 1:] & (_LOW >> np.uint64(1))).astype(np.int64), again.astype(np.uint64), 1)
        left, new, tries = left[again.any(1)], new[again.any(1)], tries + 1
    return out


def normal_stream(key: int) -> np.random.Generator:
    """The Gaussian stream of one (client, call): read in order, however it is cut into draws."""
    return np.random.Generator(np.random.Philox(key=key))


def systematic(likely: NDArray[np.float64], size: int, stream: np.random.Generator) -> NDArray[np.int64]:
    """`size` different places, the k-th with probability likely[k] ≤ 1; these sum to `size`.

    The places lie on a line in random order, each as long as it is likely, and every whole step from a random point on the first takes one.

    >>> sorted(systematic(np.array([1.0, 0.5, 0.5, 1.0]), 3, np.random.default_rng(0)).tolist())[::2]
    [0, 3]
    """
    order = stream.permutation(len(likely))
    ends, step = np.cumsum(likely[order]), np.arange(size)
    places = np.searchsorted(ends * (size / ends[-1]), stream.random() + step, side="right")
    # rounding at the ends of the line must not take one place twice, or one past the last
    chosen: NDArray[np.int64] = order[np.minimum(np.maximum.accumulate(places - step), len(order) - size) + step]
    return chosen
