"""SOAP on clients of unequal sizes: its twins on the samples that were drawn, what it keeps for each row, and what it refuses."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import twins_soap as twins
from baselines import HIGH, LOW, different, run, same
from positive_rows import rows
from torch import Tensor

from rookery import FCSG, SOAP, Conditional, Data, Federation, box
from rookery.data import Draw, Normal, PerTask, Positives, Request, Stored
from rookery.engines import Wire
from rookery.errors import AlgorithmError, EngineError
from rookery.objectives import ap_surrogate
from rookery.problems import testproblems as known
from rookery.training.checkpoint import load, save

LR, Q, ROUNDS, MARGIN = 0.1, 3, 6, 0.8
Drawn = dict[int, list[tuple[list[int], Any]]]


class Recording:
    """What each client drew, step after step: its outer rows, and the inner samples of each."""

    def select(self, draw: Draw, request: Request) -> dict[str, Tensor]:
        selection = super().select(draw, request)  # type: ignore[misc]
        for k, client in enumerate(draw.clients):
            for step in range(len(draw.steps)):
                rows = selection["index"][k, step].tolist()
                inner = selection["columns"][k, step] if "columns" in selection else selection["innerindex"][k, step].expand(len(rows), -1)
                self.drawn[int(client)].append((rows, inner.tolist()))
        return selection  # type: ignore[no-any-return]

    @property
    def drawn(self) -> Drawn:
        return self.__dict__.setdefault("_drawn", defaultdict(list))  # type: ignore[no-any-return]


class RecordedStored(Recording, Stored):
    pass


class RecordedPositives(Recording, Positives):
    pass


def recorded(**options: Any) -> tuple[Federation[Conditional], Drawn, Data]:
    k, sampling = known.conditional(), RecordedStored("eta")
    problem = replace(k.problem, sampling=sampling, project_x=options.pop("project_x", None))
    assert isinstance(problem, Conditional)
    return Federation(problem, k.data, engine="loop", seed=3, **options), sampling.drawn, k.data


def twin(data: Data, drawn: Drawn, cohorts: list[list[int]] | None = None, **options: Any) -> list[Any]:
    """The twin on the samples of `known.conditional` that were drawn: g = η·x, f = ½(u − b)², h = ¼‖x‖²."""
    parts, taken = [data.views(k) for k in range(len(data.names))], {k: iter(batches) for k, batches in drawn.items()}
    return twins.soap(
        np.zeros(3), len(parts), lambda r, k, q: next(taken[k]), rounds=ROUNDS, local_steps=Q, lr=LR, cohorts=cohorts,
        inner=lambda k, x, i, j: ((parts[k]["eta"][i, j] @ torch.from_numpy(x)).numpy().reshape(1), parts[k]["eta"][i, j].numpy()[None]),
        slope=lambda k, u, i: u - float(parts[k]["b"][i]), plain=lambda x: 0.5 * x, **options)


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_the_twin_on_the_samples_that_were_drawn(beta: float) -> None:
    """From x = 0, where every first inner value is 0; with three rows of few, some are drawn twice at once."""
    fed, drawn, data = recorded(weights="samples")
    ours = run(SOAP(LR, Q, 3, 2, gamma=0.4, beta=beta), fed, torch.zeros(3, dtype=torch.float64), ROUNDS)
    assert any(len(set(rows)) < len(rows) for batches in drawn.values() for rows, _ in batches)
    assert [len(drawn[k]) for k in range(4)] == [Q * ROUNDS] * 4
    same(ours, twin(data, drawn, gamma=0.4, beta=beta, weights=data.sizes))
    for wrong in ("u from before", "no memory", "one u for all rows", "u starts from 0", "0 is not drawn yet"):
        broken = twin(data, drawn, gamma=0.4, beta=beta, weights=data.sizes, wrong=wrong)
        if wrong == "u starts from 0":  # from x = 0 that is the same for who was drawn in the first step, and not for the others
            assert np.abs(np.asarray(broken) - torch.stack(ours).numpy()).max() > 1e-4
        else:
            different(ours, broken)
    different(ours, twin(data, drawn, gamma=0.4, beta=0.5, weights=data.sizes))


def test_the_twin_over_a_set() -> None:
    fed, drawn, data = recorded(project_x=box(LOW, HIGH))
    ours = run(SOAP(LR, Q, 3, 2, gamma=0.4), fed, torch.zeros(3, dtype=torch.float64), ROUNDS)
    same(ours, twin(data, drawn, gamma=0.4, project=lambda x: np.clip(x, LOW, HIGH)))
    different(ours, twin(data, drawn, gamma=0.4))


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_who_is_away_keeps_its_values(beta: float) -> None:
    fed, drawn, data = recorded(clients_per_round=2)
    algorithm, cohorts, ours = SOAP(LR, Q, 3, 2, gamma=0.4, beta=beta), [], []
    state = algorithm.init(fed, torch.zeros(3, dtype=torch.float64))
    for _ in range(ROUNDS):
        before = {k: len(drawn[k]) for k in range(4)}
        state = algorithm.round(fed, state)
        cohorts.append([k for k in range(4) if len(drawn[k]) > before[k]])
        ours.append(state.x)
    assert all(len(cohort) == 2 for cohort in cohorts)
    assert len({k for cohort in cohorts for k in cohort}) > len(cohorts[0])  # somebody joined later
    same(ours, twin(data, drawn, cohorts, gamma=0.4, beta=beta))
    different(ours, twin(data, drawn, cohorts, gamma=0.4, beta=beta, wrong="no memory"))


def sites() -> Data:
    return Data.from_parts({"a": rows(12, 4, 0), "b": rows(9, 2, 1), "none": rows(7, 0, 2), "all": rows(5, 5, 3)})


def linear(x: Tensor, b: Any) -> Tensor:
    return b.inputs @ x


@pytest.mark.parametrize("sizes", [(1, 5), (None, None)], ids=["drawn", "all rows"])
def test_one_client_and_one_step_are_the_papers_method(sizes: tuple[int | None, int | None]) -> None:
    """Average precision with the paper's closed estimator."""
    data, sampling = Data.from_parts({"a": rows(12, 4, 0)}), RecordedPositives()
    fed = Federation(ap_surrogate(linear, MARGIN, sampling), data, engine="loop")
    x = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    ours = run(SOAP(0.2, 1, *sizes, gamma=0.6), fed, x, 12)
    inputs, labels = data.views(0)["inputs"].numpy(), data.views(0)["labels"].numpy()
    everything = ([int(i) for i in np.flatnonzero(labels)], np.arange(12))
    batches = [(outer, np.asarray(inner[0])) for outer, inner in sampling.drawn[0]] or [everything] * 12
    same(ours, twins.soap_average_precision(x.numpy(), inputs, labels, batches, 0.2, 0.6, MARGIN))
    different(ours, twins.soap_average_precision(x.numpy(), inputs, labels, batches, 0.2, 1.0, MARGIN))


def test_two_inner_numbers_at_unequal_clients() -> None:
    """Average precision over clients of which one has no positives and one nothing else: p = 2, and u₁/u₂ of running values."""
    data, sampling = sites(), RecordedPositives()
    fed = Federation(ap_surrogate(linear, MARGIN, sampling), data, engine="loop")
    x = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    ours = run(SOAP(0.2, Q, 3, 5, gamma=0.5, beta=0.4), fed, x, ROUNDS)
    parts = [{name: field.numpy() for name, field in data.views(k).items()} for k in range(4)]

    def inner(k: int, w: np.ndarray, i: int, j: int) -> tuple[Any, Any]:
        gap = max(MARGIN - (parts[k]["inputs"][i] - parts[k]["inputs"][j]) @ w, 0)
        both = np.array([parts[k]["labels"][j], 1.0])
        return both * gap**2, both[:, None] * 2 * gap * (parts[k]["inputs"][j] - parts[k]["inputs"][i])[None]

    def slope(k: int, u: np.ndarray, i: int) -> np.ndarray:
        return parts[k]["labels"][i] * (np.array([-1 / u[1], u[0] / u[1] ** 2]) if u[1] > 1e-8 * MARGIN**2 else np.zeros(2))

    taken = {k: iter(batches) for k, batches in sampling.drawn.items()}
    same(ours, twins.soap(x.numpy(), 4, lambda r, k, q: next(taken[k]), inner, slope, ROUNDS, Q, 0.2, 0.5, 0.4))


# identities


@pytest.mark.parametrize("sizes", [(3, 2), (None, None)], ids=["drawn", "all rows"])
@pytest.mark.parametrize("steps", [1, Q])
def test_with_gamma_and_beta_one_it_is_fcsg_on_the_same_samples(steps: int, sizes: tuple[int | None, int | None]) -> None:
    k = known.conditional()
    ends: dict[str, list[Tensor]] = {}
    for algorithm in (FCSG(LR, steps, *sizes), SOAP(LR, steps, *sizes, gamma=1.0)):
        fed = Federation(k.problem, k.data, seed=4)
        state, ends[algorithm.title] = algorithm.init(fed, k.x0), []
        for t in range(ROUNDS):
            fed.counters["train"] = 10 * t + (algorithm.title == "FCSG")  # SOAP has a call before the one that draws
            state = algorithm.round(fed, state)
            ends[algorithm.title].append(state.x)
    same(ends["SOAP"], [x.numpy() for x in ends["FCSG"]])


def test_a_memory_makes_up_for_few_inner_samples() -> None:
    """One inner sample at a time: FCSG settles at the minimiser of E (η·x − b)²; running values come closer to that of (E η·x − b)²."""
    k = known.conditional(sizes=(4,), spread=0.3)
    ends = {}
    for gamma in (1.0, 0.1):
        fed = Federation(k.problem, k.data, seed=1, engine="loop")
        xs = run(SOAP(0.02, 4, 4, 1, gamma=gamma), fed, k.x0, 160)
        ends[gamma] = float((torch.stack(xs[80:]).mean(0) - k.x_star).norm())
    assert ends[0.1] < 0.5 * ends[1.0]


# engines


@pytest.mark.parametrize("beta", [1.0, 0.4])
@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_values_for_rows_of_unequal_clients_on_every_engine_that_takes_them(clients_per_round: int | None, beta: float) -> None:
    algorithm, x, ends = SOAP(0.3, 2, 3, 4, gamma=0.6, beta=beta), torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64), {}
    for engine in ("loop", "auto", "wire"):
        fed = Federation(ap_surrogate(linear, MARGIN), sites(), engine=engine, clients_per_round=clients_per_round, seed=1)
        ends[engine] = run(algorithm, fed, x, 4)[-1], fed.ledger
    assert torch.equal(ends["loop"][0], ends["wire"][0])
    torch.testing.assert_close(ends["auto"][0], ends["loop"][0], rtol=1e-10, atol=1e-12)
    assert ends["loop"][1] == ends["auto"][1] == ends["wire"][1]
    assert not torch.equal(ends["loop"][0], x)
    with pytest.raises(EngineError, match=r'different shape.*write engine="loop"'):
        run(algorithm, Federation(ap_surrogate(linear, MARGIN), sites(), engine="vectorised"), x, 1)


@pytest.mark.parametrize("engine", ["loop", "auto", "wire"])
def test_a_state_of_unequal_lengths_survives_a_checkpoint(engine: str, tmp_path: Path) -> None:
    algorithm, x = SOAP(0.3, 2, 3, 4, gamma=0.6, beta=0.5), torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64)

    def made() -> Federation[Conditional]:
        return Federation(ap_surrogate(linear, MARGIN), sites(), engine=Wire(tmp_path) if engine == "wire" else engine, clients_per_round=3,
                          seed=1)

    whole = run(algorithm, made(), x, 5)[-1]
    first, second = made(), made()
    state = algorithm.init(first, x)
    for _ in range(2):
        state = algorithm.round(first, state)
    save(tmp_path / "half.ckpt", algorithm, first, state)
    state = load(tmp_path / "half.ckpt", algorithm, second)
    for _ in range(3):
        state = algorithm.round(second, state)
    assert torch.equal(state.x, whole)


# what is refused


def test_samples_that_are_no_rows_are_refused() -> None:
    k = known.conditional(sizes=(3, 3))
    generated = Conditional(lambda u, xi: u[:, 0] * xi.xi, lambda x, xi, eta: (eta.eta @ x)[..., None],
                            sampling=Normal((), (3,), torch.float64))
    for engine in ("loop", "vectorised", "wire"):
        with pytest.raises(AlgorithmError, match=r"must be one row.*draws samples that are no rows: write sampling=Stored.*or take FCSG"):
            run(SOAP(LR, 1, 2, 2), Federation(generated, k.data, engine=engine), k.x0, 1)
    tasks = Data.from_parts({"a": {"z": torch.ones(12, dtype=torch.float64), "task": torch.arange(12) % 2}})
    of_tasks = Conditional(lambda u, xi: u[:, 0] * xi.z.mean(1), lambda x, xi, eta: (eta.z * x[0])[..., None], sampling=PerTask("task", 2))
    with pytest.raises(AlgorithmError, match="draws 2 rows for each of them"):
        run(SOAP(LR, 1, 2, 2), Federation(of_tasks, tasks), torch.ones(1, dtype=torch.float64), 1)


@pytest.mark.parametrize("wrong", [{"gamma": 0.0}, {"gamma": 1.5}, {"beta": 0.0}, {"lr": -1.0}, {"local_steps": 0}, {"outer": 0}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(AlgorithmError, match=next(iter(wrong))):
        SOAP(**{"lr": 0.1, **wrong})
