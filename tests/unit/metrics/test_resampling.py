"""Rows drawn anew where they are: what clients send says of the draws what the rows in one place say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from rookery import Data, Federation
from rookery.errors import DataError, PlacementError, ProblemError
from rookery.fitting.goals import GOALS
from rookery.fitting.measures import Measure, Scored
from rookery.metrics import Adaptation, group_histograms
from rookery.metrics.resampling import BINS, decided_cells, poisson, resampled, resampled_by_client
from rookery.objectives import cross_entropy
from rookery.problems import Model
from rookery.studies.agreement import count_rows

DRAWS = 30


def parts(classes: int, sites: Mapping[str, int] | None = None) -> dict[str, dict[str, Any]]:
    r = np.random.default_rng(0)
    return {name: {"inputs": r.normal(size=(rows, 3)).astype(np.float32), "labels": r.integers(0, classes, rows),
                   "sex": r.integers(0, 2, rows)} for name, rows in (sites or {"a": 40, "b": 25, "few": 3}).items()}


def federation(rows: dict[str, dict[str, Any]], classes: int, **options: Any) -> tuple[Federation[Any], torch.Tensor]:
    data = Data.from_parts(rows)
    x = torch.from_numpy(np.random.default_rng(1).normal(size=4 * classes).astype(np.float32))
    problem = cross_entropy(Model(torch.nn.Linear(3, classes)))
    return Federation(problem, data.with_splits(test=data), **{"engine": "loop", **options}), x


def scored(rows: dict[str, dict[str, Any]], x: torch.Tensor | list[torch.Tensor], classes: int, margins: tuple[float, ...] = ()) -> Scored:
    """The rows in one place, by one model or by each client's own."""
    each = [x] * len(rows) if isinstance(x, torch.Tensor) else x
    outputs = [torch.from_numpy(part["inputs"]) @ own[: 3 * classes].reshape(classes, 3).T + own[3 * classes :]
               for own, part in zip(each, rows.values(), strict=True)]
    labels, sex = (np.concatenate([part[name] for part in rows.values()]) for name in ("labels", "sex"))
    site = np.repeat(np.arange(len(rows)), [len(part["labels"]) for part in rows.values()])
    return Scored.of(torch.cat(outputs), torch.from_numpy(labels), site, sex, margins)


def weights(rows: dict[str, dict[str, Any]], seed: int) -> Any:
    """(1 + draws, rows): as they are, and in each draw."""
    own = np.concatenate([poisson(np.arange(len(part["labels"])) + (k << 32), DRAWS, seed) for k, part in enumerate(rows.values())])
    return np.concatenate([np.ones((1, len(own))), own.T])


@pytest.mark.parametrize("engine", ["loop", "wire", "auto"])
@pytest.mark.parametrize(("goal", "classes", "margins"), [
    ("worst_group", 2, (0.3,)), ("worst_group", 3, ()), ("fair", 2, (0.5, -0.2)), ("accuracy", 2, ()), ("personal", 3, ())])
def test_counts_of_decisions_are_those_of_the_rows_in_one_place(goal: str, classes: int, margins: tuple[float, ...], engine: str) -> None:
    rows = parts(classes)
    fed, x = federation(rows, classes, engine=engine)
    cells = decided_cells(fed, x, "test", classes, field="sex", groups=2, margins=margins, draws=DRAWS, seed=4)
    measure = Measure(GOALS[goal], classes, "sex", 2)
    whole, exchanges = scored(rows, x, classes, margins), fed.ledger["evaluation"].exchanges
    expected = [measure.of_rows(whole, w) for w in weights(rows, 4)]
    assert [measure.of_cells(one) for one in cells.numpy()] == pytest.approx(expected, abs=1e-9)
    assert len(set(expected)) > 5
    assert exchanges == 1


@pytest.mark.parametrize("engine", ["loop", "wire", "auto"])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_clients_are_those_of_their_rows_in_one_place(classes: int, engine: str) -> None:
    rows = parts(classes)
    fed, x = federation(rows, classes, engine=engine)
    found = resampled_by_client(fed, x, "test", classes, DRAWS, seed=4)
    assert found.rows.tolist() == [np.bincount(part["labels"], minlength=classes).tolist() for part in rows.values()]
    measure, whole = Measure(GOALS["worst_site"], classes), scored(rows, x, classes)
    assert measure.of_sites(found).tolist() == pytest.approx([measure.of_rows(whole, w) for w in weights(rows, 4)], abs=1e-9, nan_ok=True)
    assert fed.ledger["evaluation"].exchanges == 1


def test_every_client_by_its_own_model() -> None:
    rows = parts(2, {"a": 40, "b": 25})
    fed, x = federation(rows, 2)
    how = Adaptation(lr=0.5, steps=2)
    whole, own = scored(rows, list(fed.collect(how.of(fed, x))), 2), how.of(fed, x)
    cells = decided_cells(fed, own, "test", draws=DRAWS, seed=4)
    first, second = Measure(GOALS["accuracy"], 2), Measure(GOALS["worst_site"], 2)
    for measure, found in ((first, [first.of_cells(one) for one in cells.numpy()]),
                           (second, second.of_sites(resampled_by_client(fed, own, "test", 2, DRAWS, 4)).tolist())):
        assert found == pytest.approx([measure.of_rows(whole, w) for w in weights(rows, 4)], abs=1e-9)
    assert torch.equal(resampled(fed, own, "test", 2, DRAWS, 4).sum((1, 2)), cells[1:].sum((1, 2, 3)))


def test_a_client_with_too_few_rows_shows_none() -> None:
    rows = parts(2)
    fed, x = federation(rows, 2, min_batch=5)
    found = resampled_by_client(fed, x, "test", 2, DRAWS)
    assert found.rows[2].tolist() == [0, 0]
    assert np.isnan(found.auc[2]).all()
    assert np.isnan(found.accuracy[2]).all()
    assert decided_cells(fed, x, "test")[0].sum() == 65


def test_a_group_with_too_few_rows_at_a_client_is_left_out() -> None:
    rows = parts(2)
    rows["a"]["sex"][:] = 0
    rows["a"]["sex"][:4] = 1
    fed, x = federation(rows, 2, min_batch=5)
    found = decided_cells(fed, x, "test", field="sex", groups=2, draws=2)
    here = np.bincount(rows["b"]["sex"], minlength=2) + np.asarray([36, 0])
    assert found[0].sum((1, 2)).tolist() == here.tolist()
    assert group_histograms(fed, x, "test", "sex", 2).sum((0, 2, 3)).tolist() == here.tolist()
    alone = federation({"a": rows["a"]}, 2, min_batch=5)[0]
    assert decided_cells(alone, x, "test", field="sex", groups=2, draws=2)[:, 1].sum() == 0


@pytest.mark.parametrize("margins", [[0.0] * 3, [0.0] * 40])
def test_there_is_no_margin_for_every_row(margins: list[float]) -> None:
    fed, x = federation(parts(2, {"a": 40}), 2)
    with pytest.raises(ProblemError, match=r"there is one margin, or one for each of 2 groups, or none; got \("):
        decided_cells(fed, x, "test", field="sex", groups=2, margins=margins)


@pytest.mark.parametrize("field", ["patient", "inputs", "nobody"])
def test_groups_are_numbered_from_0(field: str) -> None:
    """A column of other numbers, such as those that stand for patients, is no column of groups, and its numbers are not told."""
    rows = {name: {**part, "patient": part["labels"] + 2**61} for name, part in parts(2).items()}
    fed, x = federation(rows, 2)
    for ask in (lambda: decided_cells(fed, x, "test", field=field, groups=2), lambda: group_histograms(fed, x, "test", field, 2),
                lambda: count_rows(fed, 2, field, 2, by_site=False)):
        with pytest.raises(DataError, match=r"the field (of the groups|'\w+') must") as error:
            ask()
        assert str(2**61)[:6] not in str(error.value)


def test_scores_of_clients_are_no_sums() -> None:
    fed, x = federation(parts(2), 2, only_sums=True)
    with pytest.raises(PlacementError, match="only sums"):
        resampled_by_client(fed, x, "test")
    assert decided_cells(fed, x, "test")[0].sum() == 68


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_drawn_anew_where_they_are(classes: int) -> None:
    r = np.random.default_rng(0)
    parts = {name: {"inputs": r.normal(size=(rows, 3)).astype(np.float32), "labels": r.integers(0, classes, rows)}
             for name, rows in (("a", 40), ("b", 25))}
    data = Data.from_parts(parts)
    fed = Federation(cross_entropy(Model(torch.nn.Linear(3, classes))), data.with_splits(test=data), engine="loop")
    x = torch.from_numpy(r.normal(size=4 * classes).astype(np.float32))
    sums = resampled(fed, x, "test", classes, 50, seed=1)
    assert sums.shape == ((50, 2, BINS) if classes == 2 else (50, 2))
    weights = [poisson(np.arange(len(part["labels"])) + (k << 32), 50, 1) for k, part in enumerate(parts.values())]
    assert sums.flatten(1).sum(1).tolist() == sum(own.sum(0) for own in weights).tolist()
    if classes == 2:
        labels = np.concatenate([part["labels"] for part in parts.values()])
        assert sums[:, 1].sum(1).tolist() == (np.concatenate(weights) * labels[:, None]).sum(0).tolist()
    else:
        logits = [part["inputs"] @ x[: 3 * classes].reshape(classes, 3).numpy().T + x[3 * classes :].numpy() for part in parts.values()]
        right = np.concatenate([own.argmax(1) == part["labels"] for own, part in zip(logits, parts.values(), strict=True)])
        assert sums[:, 1].tolist() == (np.concatenate(weights) * right[:, None]).sum(0).tolist()


def test_rows_of_a_group_are_drawn_together() -> None:
    data = Data.from_parts({name: {"inputs": np.zeros((4, 2), dtype=np.float32), "labels": np.zeros(4, dtype=np.int64),
                                   "group": np.full(4, 7)} for name in ("a", "b")})
    fed = Federation(cross_entropy(Model(torch.nn.Linear(2, 2))), data.with_splits(test=data), engine="loop")
    rows = resampled(fed, torch.zeros(6), "test", 2, 100).flatten(1).sum(1)
    assert set((rows % 8).tolist()) == {0.0}
    assert len(set(rows.tolist())) > 2
