"""A server that chooses calls and batches as it likes, and knows the seed, names and sizes, against a site's `min_batch` and salt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery import Data, FedAvg, Federation, Minimization, Model
from rookery.data import Request
from rookery.engines import Wire
from rookery.engines.frames import pack, unpack
from rookery.engines.programs import describe, digest_of, named
from rookery.engines.site import Site
from rookery.errors import AlgorithmError
from rookery.federation import rng
from rookery.federation.client import ClientContext, Setting
from rookery.federation.drawing import Drawing
from rookery.metrics.resampling import Resampled, poisson
from rookery.objectives import cross_entropy

ROWS, BATCH, SEED = 10, 5, 1
CALLS = 50_000
SALT = 0x1234_5678_9ABC_DEF1


def problem() -> Minimization:
    return Minimization(lambda x, b: (b.a @ x).square().mean() / 2 - (b.a @ x * b.b).mean())


def people() -> Data:
    r = torch.Generator().manual_seed(0)
    return Data.from_parts({"clinic": {"a": torch.randn(ROWS, 3, generator=r, dtype=torch.float64),
                                       "b": torch.randn(ROWS, generator=r, dtype=torch.float64)}})


def predicted(min_batch: int, calls: np.ndarray, salt: int = 0) -> np.ndarray:
    """What these calls draw, (calls, BATCH), worked out from names and sizes alone: the rows here are all zero."""
    roster = Data.from_parts({"clinic": {"a": torch.zeros(ROWS, 3)}})
    made, request = Setting(problem(), roster, SEED, min_batch=min_batch, salt=salt), Request(BATCH)
    out = []
    for call in calls:
        draw = made.draw(request, np.zeros(1, int), made.keys(np.zeros(1, int), "train", int(call)), 0, np.zeros(1, int), _none)
        out.append(made.problem.sampling.select(draw, request)["index"][0, 0].numpy())
    return np.stack(out)


def _none(_: int, key: int) -> np.random.Generator:
    raise AssertionError("rows are not drawn from a stream")


def many_calls(min_batch: int) -> np.ndarray:
    """The same for a great many calls at once: each stands as a client of its own."""
    roster = Data({"a": torch.zeros(CALLS * ROWS, 1)}, tuple(map(str, range(CALLS))), np.full(CALLS, ROWS))
    made = Setting(problem(), Data.from_parts({"clinic": {"a": torch.zeros(ROWS, 3)}}), SEED, min_batch=min_batch)
    made.keys(np.zeros(1, int), "train", 0)
    keys = rng.combine(made.phase_keys["train"], np.arange(CALLS))
    draw = replace(made, data=roster).draw(Request(BATCH), np.arange(CALLS), keys, 0, np.zeros(1, int), _none)
    return np.asarray(made.problem.sampling.select(draw, Request(BATCH))["index"][:, 0])


def answer(made: Setting, call: int, batch: int = BATCH) -> Tensor | str:
    """What the site uploads for one local step of length 1 from the origin, the mean of b·a over a batch; or its refusal."""
    program, x = FedAvg(1.0, 1, batch), torch.zeros(3, dtype=torch.float64)
    frame = pack({"run": "run", "k": 1, "base": 0, "clients": [0], "want": [2], "free": [], "forget": [],
                  "programs": {name: digest_of(name) for name in named(describe(program))}, "ops": [
        {"op": "map", "fn": [describe(program), "step"], "arguments": [{"ref": 1}, {"value": 1.0}], "out": [2], "times": 1,
         "phase": "train", "call": call, "known": 0}]}, {1: x})
    header, sent = unpack(Site(made, "run").answer(frame))
    return sent[0] if "error" not in header else str(header["error"][1])


def test_with_replacement_a_call_is_found_that_gives_one_row_away() -> None:
    found = many_calls(1)
    call = int(np.flatnonzero((found == found[:, :1]).all(1))[0])
    row = int(predicted(1, np.array([call]))[0, 0])
    assert row == found[call, 0]
    data = people().fields
    torch.testing.assert_close(answer(Setting(problem(), people(), SEED), call), data["a"][row] * data["b"][row])


def test_under_min_batch_no_call_repeats_a_row() -> None:
    found, calls = many_calls(BATCH), np.arange(20)
    ordered = np.sort(found, axis=1)
    assert (ordered[:, 1:] > ordered[:, :-1]).all()
    assert len(np.unique(ordered, axis=0)) == 252  # all sets of five
    data = people().fields
    assert (predicted(BATCH, calls) == found[calls]).all()
    for call, rows in zip(calls, found, strict=False):
        mean = (data["a"][rows] * data["b"][rows, None]).mean(0)
        torch.testing.assert_close(answer(Setting(problem(), people(), SEED, min_batch=BATCH), int(call)), mean)


def test_under_min_batch_a_site_refuses_fewer_rows() -> None:
    said = answer(Setting(problem(), people(), SEED, min_batch=BATCH), 1, batch=BATCH - 1)
    assert isinstance(said, str)
    assert "a batch of 4 was drawn" in said
    few = Data.from_parts({"clinic": {name: field[:3] for name, field in people().fields.items()}})
    said = answer(Setting(problem(), few, SEED, min_batch=BATCH), 1, batch=50)
    assert isinstance(said, str)
    assert "a batch of 3 was drawn" in said


def drawn(made: Setting, calls: np.ndarray) -> np.ndarray:
    """The rows that a site draws in these calls."""
    out = []
    for call in calls:
        batch = ClientContext(made, 1, Drawing(made, 0, "train", int(call), 1)).draw(BATCH)
        assert batch.index is not None
        out.append(batch.index.numpy())
    return np.stack(out)


@pytest.mark.parametrize("min_batch", [1, BATCH])
def test_without_the_salt_nobody_knows_which_rows_were_drawn(min_batch: int) -> None:
    """Of 2000 predicted numbers about one in ROWS is right by chance, no more; without a salt all are."""
    calls = np.arange(400)
    guess = predicted(min_batch, calls)
    plain = Setting(problem(), people(), SEED, min_batch=min_batch)
    assert (guess == drawn(plain, calls)).all()
    hits = (guess == drawn(replace(plain, salt=SALT), calls)).sum()
    assert abs(hits - guess.size / ROWS) < 5 * (guess.size / ROWS) ** 0.5
    other = (drawn(replace(plain, salt=SALT + 1), calls) == drawn(replace(plain, salt=SALT), calls)).sum()
    assert abs(other - guess.size / ROWS) < 5 * (guess.size / ROWS) ** 0.5
    assert (predicted(min_batch, calls, SALT) == drawn(replace(plain, salt=SALT), calls)).all()


# the salt

class Salted(Wire):
    """Sites with a secret of their own, which the server's setting does not have."""

    def __init__(self, salt: int) -> None:
        super().__init__()
        self.salt = salt

    def connect(self, setting: Setting) -> None:
        super().connect(replace(setting, salt=self.salt))


def trained(engine: Wire) -> tuple[Tensor, list[int]]:
    """Where two rounds lead, and which cohorts the server drew."""
    data = Data.from_parts({name: people().views(0) for name in ("north", "south", "west")})
    fed = Federation(problem(), data, engine=engine, clients_per_round=1, min_batch=BATCH)
    algorithm = FedAvg(0.1, local_steps=3, batch=BATCH)
    state = algorithm.init(fed, torch.zeros(3, dtype=torch.float64))
    for _ in range(2):
        state = algorithm.round(fed, state)
    return state.x, [int(fed.cohort().index[0]) for _ in range(5)]


@pytest.mark.parametrize("salt", [0, SALT])
def test_without_the_salt_nobody_works_out_rows_from_sums_that_count_them_more_or_less_than_once(salt: int) -> None:
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 1, 1])
    rows = Data.from_parts({"clinic": {"inputs": people().fields["a"], "labels": labels}})
    setting = Setting(cross_entropy(Model(torch.nn.Linear(3, 2).double())), rows.with_splits(test=rows), SEED, min_batch=BATCH, salt=salt)
    c = ClientContext(setting, 1, Drawing(setting, 0, "evaluation", 1, 1))
    counts = poisson(np.arange(ROWS), 40, 7).astype(float)  # what a server knows
    sums = Resampled("test", 2, 40, 7).total(c, torch.zeros(8, dtype=torch.float64), torch.zeros(0, dtype=torch.float64), 0.0)  # type: ignore[arg-type]
    found = np.linalg.lstsq(counts.T, sums.reshape(40, 2)[:, 1].numpy(), rcond=None)[0]
    assert np.allclose(found, labels) == (salt == 0)


def test_a_run_with_the_same_salt_is_the_same_and_salt_0_is_none() -> None:
    plain, cohorts = trained(Wire())
    assert torch.equal(trained(Salted(0))[0], plain)
    first, again, other = (trained(Salted(salt)) for salt in (SALT, SALT, SALT + 1))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], plain)
    assert not torch.equal(first[0], other[0])
    assert first[1] == cohorts  # the server's draws have no salt


def test_noise_and_the_seed_of_a_batch_are_salted() -> None:
    def made(salt: int) -> tuple[Tensor, int | None]:
        setting = Setting(replace(problem(), stochastic=True), people(), SEED, salt=salt)
        drawing = Drawing(setting, 0, "train", 1, 1)
        c = ClientContext(setting, 1, drawing)
        return c.noise(torch.zeros(4), "uniform"), c.draw(BATCH).key

    assert torch.equal(made(SALT)[0], made(SALT)[0])
    assert made(SALT)[1] == made(SALT)[1]
    assert not torch.equal(made(SALT)[0], made(0)[0])
    assert made(SALT)[1] != made(0)[1]
    plain, salted, other = (Setting(problem(), people(), SEED, salt=salt).generator_seed(5) for salt in (0, SALT, SALT + 1))
    assert plain == 5  # whose number of the draw's own key a mask of dropout could give away
    assert len({plain, salted, other}) == 3


def unmixed(word: int) -> int:
    """The word that splitmix64 hashes to this one: its steps undone, last to first."""
    def undone(z: int, shift: int) -> int:
        found = z
        for _ in range(64 // shift):
            found = z ^ found >> shift
        return found

    word = undone(word, 31) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    word = undone(word, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return (undone(word, 30) - 0x9E3779B97F4A7C15) % 2**64


@pytest.mark.parametrize("salt", [0, SALT])
def test_noise_that_is_seen_tells_of_no_other(salt: int) -> None:
    """Twelve bits of a number between 0 and 1 are cut off: with the other 52 a server needs 4096 tries to undo the hash."""
    drawing = Drawing(Setting(problem(), people(), SEED, salt=salt), 0, "train", 1, 1)
    seen = ClientContext(drawing.setting, 1, drawing).noise(torch.zeros(2, dtype=torch.float64), "uniform").double().numpy()
    words = [(int(seen[0] * 2**52) << 12) + low for low in range(4096)]
    bases = rng.as_keys([unmixed(word) for word in words])
    nexts = (rng.splitmix64(bases + np.uint64(1)) >> np.uint64(12)).astype(np.float64) * 2.0**-52
    assert (np.abs(nexts - seen[1]).min() < 2.0**-50) == (salt == 0)


def test_a_key_under_a_salt_tells_of_no_other_call() -> None:
    """Without one, a call's key gives the key of all calls away, and so every other call's."""
    def keys(salt: int) -> list[int]:
        setting = Setting(problem(), people(), SEED, salt=salt)
        return [int(setting.keys(np.zeros(1, int), "train", call)[0]) for call in (1, 2)]

    def next_of(key: int) -> int:
        common = unmixed(key) ^ int(rng.splitmix64(rng.as_keys(1))[0])
        return int(rng.combine(rng.as_keys(common), 2)[0])

    first, second = keys(0)
    assert next_of(first) == second
    first, second = keys(SALT)
    assert next_of(first) != second
    assert keys(SALT) != keys(SALT + 1)


def test_how_often_one_row_is_drawn_tells_of_no_other() -> None:
    """A row's counts follow from its key, and without a secret its key gives those of all rows away."""
    units = np.arange(ROWS)
    plain, salted = (poisson(units, 1000, 7, lambda keys, size, s=salt: rng.uniform(keys, size, s)) for salt in (0, SALT))  # type: ignore[misc]
    assert np.array_equal(plain, poisson(units, 1000, 7))
    assert np.array_equal(salted, poisson(units, 1000, 7, lambda keys, size: rng.uniform(keys, size, SALT)))
    assert not np.array_equal(salted, poisson(units, 1000, 7, lambda keys, size: rng.uniform(keys, size, SALT + 1)))
    assert abs(salted.mean() - 1) < 0.05
    assert abs(np.corrcoef(salted) - np.eye(ROWS)).max() < 0.2


@pytest.mark.parametrize("salt", [-1, 2**128, 0.5])
def test_a_salt_is_a_128_bit_number_and_is_told_to_nobody(salt: float) -> None:
    with pytest.raises(AlgorithmError, match=r"a salt is a whole number from 0, none, to 2\*\*128 - 1") as told:
        Setting(problem(), people(), SEED, salt=salt)  # type: ignore[arg-type]
    assert str(salt) not in str(told.value).replace("2**128 - 1", "")
    assert str(SALT) not in repr(Setting(problem(), people(), SEED, salt=SALT))
