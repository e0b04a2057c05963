"""Draws are pure functions of (seed, name, call, position, step), and they are uniform."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rookery import Data, Federation, Minimization, Program, RookeryError
from rookery.data import Draw
from rookery.federation import Client, rng
from rookery.federation.client import Setting

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
word = st.integers(0, MASK)
steady = settings(deadline=None, derandomize=True)


def slow_splitmix64(state: int) -> int:
    """The step of splitmix64 with Python's unbounded integers, as Steele, Lea and Flood print it."""
    z = (state + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def slow_combine(key: int, *parts: int) -> int:
    for part in parts:
        key = slow_splitmix64(key ^ slow_splitmix64(part))
    return key


def slow_name(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def chi_square(counts: Any) -> float:
    counts = np.asarray(counts, dtype=float)
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(("seed", "published"), [
    (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]),
    (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]),
])
def test_splitmix64_gives_the_published_sequences(seed: int, published: list[int]) -> None:
    """The generator adds the golden ratio to its state; the hash is its output at that state."""
    states = [(seed + i * GOLDEN) & MASK for i in range(5)]
    assert [slow_splitmix64(s) for s in states] == published
    assert rng.splitmix64(rng.as_keys(states)).tolist() == published


@steady
@given(st.lists(word, min_size=1, max_size=8))
def test_splitmix64_equals_big_integers(states: list[int]) -> None:
    assert rng.splitmix64(rng.as_keys(states)).tolist() == [slow_splitmix64(s) for s in states]


@steady
@given(word, st.lists(word, max_size=5))
def test_combine_equals_big_integers(key: int, parts: list[int]) -> None:
    assert rng.combine(rng.as_keys(key), *parts).tolist() == [slow_combine(key, *parts)]


def test_combine_broadcasts() -> None:
    keys, parts = [3, 5], [7, 11, 13]
    got = rng.combine(rng.as_keys(keys)[:, None], np.asarray(parts)[None, :])
    assert got.tolist() == [[slow_combine(k, p) for p in parts] for k in keys]


@steady
@given(word, st.integers(1, (1 << 32) - 1))
def test_below_equals_big_integers_and_keeps_its_bound(bits: int, bound: int) -> None:
    got = int(rng.below(rng.as_keys(bits), bound)[0])
    assert got == ((bits >> 32) * bound) >> 32
    assert 0 <= got < bound


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000, (1 << 31) + 1, (1 << 32) - 1])
def test_below_reaches_both_ends(bound: int) -> None:
    assert rng.below(rng.as_keys([0, MASK]), bound).tolist() == [0, bound - 1]


@pytest.mark.parametrize(("name", "value"), [("a", 0x2F42665B399EF840), ("server", 0x972C02F8C9B5FADD), ("Zürich", 0x08D579A7FA387470)])
def test_name_word_is_stable(name: str, value: int) -> None:
    """Written down: another value would change every published run."""
    assert rng.name_key(name) == slow_name(name) == value


def test_name_words_of_many_names_differ() -> None:
    assert len({rng.name_key(f"client-{i}") for i in range(10_000)}) == 10_000


@pytest.mark.parametrize(("n", "size"), [(4, 2), (4, 3), (8, 3), (3, 3), (3, 5), (5, 1)])
def test_distinct_numbers_are_a_uniform_ordered_choice(n: int, size: int) -> None:
    """By both ways: few of many are drawn again until they differ, many of few are sorted."""
    found = rng.distinct_index(rng.splitmix64(rng.counting(40_000)), size, np.full(40_000, n))
    first, rest = found[:, :n], found[:, n:]
    assert (np.sort(first, axis=1)[:, 1:] > np.sort(first, axis=1)[:, :-1]).all()
    assert (rest == found[:, : rest.shape[1]]).all()
    counts = np.unique(first @ n ** np.arange(first.shape[1]), return_counts=True)[1]
    orders = math.perm(n, min(n, size))
    assert len(counts) == orders
    assert chi_square(counts) < orders - 1 + 5 * math.sqrt(2 * orders)


def test_distinct_numbers_of_many_keys_are_those_of_each() -> None:
    keys, number = rng.splitmix64(rng.counting(30)), np.arange(1, 31)
    together = rng.distinct_index(keys, 7, number)
    for k in range(30):
        assert rng.distinct_index(keys[k : k + 1], 7, number[k : k + 1])[0].tolist() == together[k].tolist()


# draws

def data_of(*names: str, rows: int = 50) -> Data:
    return Data.from_parts({name: {"u": torch.arange(rows, dtype=torch.float64)} for name in names})


def draw_of(data: Data, clients: list[int], steps: list[int], *, seed: int = 3, phase: str = "train", call: int = 1,
            position: int = 0) -> Draw:
    setting = Setting(Minimization(lambda x, b: x.sum()), data, seed)
    where = np.asarray(clients)
    return Draw(data, where, setting.keys(where, phase, call), position, np.asarray(steps))


def below(size: int = 6, bound: int = 1 << 30, **of: Any) -> list[Any]:
    """One client's integers in one step."""
    name, step = of.pop("name", "a"), of.pop("step", 0)
    return draw_of(data_of(name), [0], [step], **of).below(size, np.asarray(bound))[0, 0].tolist()


def test_a_draw_is_the_documented_hash() -> None:
    base = slow_combine(slow_name("a"), 3, slow_name("train"), 7, 2, 5)  # seed, phase, call, position, step
    expected = [((slow_splitmix64((base + i) & MASK) >> 32) * 1000) >> 32 for i in range(6)]
    assert below(bound=1000, call=7, position=2, step=5) == expected


def test_a_draw_depends_on_each_coordinate_and_nothing_else() -> None:
    plain = below()
    assert below() == plain
    others = [below(name="b"), below(seed=4), below(phase="evaluation"), below(call=2), below(position=1), below(step=1)]
    seen = [tuple(plain), *map(tuple, others)]
    assert len(set(seen)) == len(seen)
    # not even one of six thirty-bit numbers is the same at the same place
    assert all(a != b for other in others for a, b in zip(plain, other, strict=True))


def test_clients_and_steps_may_be_drawn_together_or_alone() -> None:
    data = data_of("a", "b", "c")
    together = draw_of(data, [0, 1, 2], [0, 1, 2, 3, 4]).below(7, np.asarray(1000))
    assert together.shape == (3, 5, 7)
    for client in range(3):
        for step in range(5):
            assert draw_of(data, [client], [step]).below(7, np.asarray(1000))[0, 0].tolist() == together[client, step].tolist()
    assert draw_of(data, [2, 0], [4, 1]).below(7, np.asarray(1000)).tolist() == together[[2, 0]][:, [4, 1]].tolist()


@pytest.mark.parametrize("names", ["abcde", "cab", "ca", "zbcay", "c"])
def test_other_clients_and_their_order_change_no_draw(names: str) -> None:
    everyone = data_of("a", "b", "c")
    reference = dict(zip("abc", draw_of(everyone, [0, 1, 2], [0, 1, 2]).below(9, np.asarray(50)).tolist(), strict=True))
    got = draw_of(data_of(*names), list(range(len(names))), [0, 1, 2]).below(9, np.asarray(50)).tolist()
    compared = [name for name in names if name in reference]
    assert compared
    for name in compared:
        assert got[names.index(name)] == reference[name]


@dataclass(frozen=True)
class Spread(Program):
    """Brings every client's own numbers to the server, a row each."""

    clients: int
    size: int

    def rows(self, c: Client, k: float) -> Tensor:
        mine = (torch.arange(self.clients) == k).double()
        return mine[:, None] * c.draw(self.size).index.double()


def table(fed: Federation, size: int = 5) -> dict[str, list[float]]:
    rows = fed.sum(fed.map(Spread(fed.population, size).rows, np.arange(fed.population)))
    return dict(zip(fed.data.names, rows.tolist(), strict=True))


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize("names", ["dcba", "abcdef", "fbd"])
def test_a_federation_of_others_draws_the_same_for_each(engine: str, names: str) -> None:
    problem = Minimization(lambda x, b: x.sum())
    first = Federation(problem, data_of(*"abcd"), engine=engine, seed=11)
    second = Federation(problem, data_of(*names), engine=engine, seed=11)
    for _ in range(2):
        a, b = table(first), table(second)
        assert {n: v for n, v in b.items() if n in a} == {n: v for n, v in a.items() if n in b}
        assert len(set(map(tuple, a.values()))) == 4


def test_a_cohort_follows_names_and_not_places() -> None:
    problem = Minimization(lambda x, b: x.sum())
    names = [f"c{i}" for i in range(20)]
    first = Federation(problem, data_of(*names), engine="loop", seed=5, clients_per_round=6)
    second = Federation(problem, data_of(*reversed(names)), engine="loop", seed=5, clients_per_round=6)
    cohorts = [(sorted(first.cohort().names), sorted(second.cohort().names)) for _ in range(30)]
    assert all(a == b for a, b in cohorts)
    assert len({tuple(a) for a, _ in cohorts}) == 30
    counts = {name: sum(name in a for a, _ in cohorts) for name in names}
    assert all(len(set(a)) == 6 for a, _ in cohorts)
    assert min(counts.values()) >= 2  # 9 are expected of each


def test_cohorts_are_uniform() -> None:
    fed = Federation(Minimization(lambda x, b: x.sum()), data_of(*[f"c{i}" for i in range(10)]), engine="loop", seed=2, clients_per_round=3)
    counts = np.zeros(10)
    for _ in range(2000):
        counts[fed.cohort().index] += 1
    assert counts.sum() == 6000
    assert chi_square(counts) < 30  # 9 degrees of freedom


def test_server_integers_are_uniform_and_bounded() -> None:
    fed = Federation(Minimization(lambda x, b: x.sum()), data_of("a"), engine="loop", seed=2)
    values = [fed.integer(7) for _ in range(3500)]
    assert set(values) == set(range(7))
    assert chi_square(np.bincount(values)) < 30  # 6 degrees of freedom
    again = Federation(Minimization(lambda x, b: x.sum()), data_of("b"), engine="loop", seed=2)
    assert [again.integer(7) for _ in range(20)] == values[:20]


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_that_is_no_word_is_refused_at_once_or_works(seed: int) -> None:
    try:
        fed = Federation(Minimization(lambda x, b: x.sum()), data_of("a", "b"), engine="loop", seed=seed)
    except RookeryError as error:
        assert "seed" in str(error)  # noqa: PT017
    else:
        assert set(table(fed)) == {"a", "b"}


# uniformity

@pytest.mark.parametrize("bound", [2, 7, 10, 64])
def test_integers_are_uniform(bound: int) -> None:
    values = draw_of(data_of("a", "b", "c"), [0, 1, 2], list(range(500))).below(20, np.asarray(bound))
    for sample in (values, values[0], values[:, :, 0], values[:, :, -1]):
        degrees = bound - 1
        assert chi_square(np.bincount(sample.reshape(-1), minlength=bound)) < degrees + 5 * np.sqrt(2 * degrees) + 5


@pytest.mark.parametrize("axis", ["client", "step", "place"])
def test_neighbouring_draws_are_independent(axis: str) -> None:
    values = draw_of(data_of(*[f"c{i}" for i in range(20)]), list(range(20)), list(range(40))).below(40, np.asarray(5))
    number = ["client", "step", "place"].index(axis)
    first, second = np.delete(values, -1, number), np.delete(values, 0, number)
    pairs = np.bincount((5 * first + second).reshape(-1), minlength=25)
    assert pairs.sum() == first.size > 25_000
    assert chi_square(pairs) < 24 + 5 * np.sqrt(48) + 5


def test_permutations_are_permutations_and_uniform() -> None:
    keys = rng.combine(rng.as_keys(9), np.arange(6000))
    orders = rng.permuted_index(keys, 3)
    assert orders.shape == (6000, 3)
    assert (np.sort(orders, axis=1) == np.arange(3)).all()
    kinds, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(kinds) == 6
    assert chi_square(counts) < 25  # 5 degrees of freedom
    long = rng.permuted_index(keys[:4], 1000)
    assert (np.sort(long, axis=1) == np.arange(1000)).all()
    assert rng.permuted_index(keys[2:3], 1000)[0].tolist() == long[2].tolist()


@steady
@given(word, st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_a_gaussian_stream_does_not_depend_on_how_it_is_cut(key: int, cuts: list[int]) -> None:
    whole = rng.normal_stream(key).standard_normal(sum(cuts), dtype=np.float32)
    stream = rng.normal_stream(key)
    parts = np.concatenate([stream.standard_normal(n, dtype=np.float32) for n in cuts])
    assert parts.tobytes() == whole.tobytes()
    assert rng.normal_stream(key ^ 1).standard_normal(8, dtype=np.float32).tobytes() != rng.normal_stream(key).standard_normal(
        8, dtype=np.float32).tobytes()
