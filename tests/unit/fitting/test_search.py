"""The search: grids that grow, what diverges, which model a method begins with, further splits, and the choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from fits import BASE, job_of, prepared

from rookery.errors import ConfigError
from rookery.fitting.bench import Memory, Trial
from rookery.fitting.goals import FIRST, GOALS, Method, Setting, methods
from rookery.fitting.measures import Measure, Scored
from rookery.fitting.search import Chosen, Clock, Search, best_of, further
from rookery.fitting.training import Outcome
from rookery.studies.build import Prepared
from rookery.studies.cells import CELLS

GRID = (0.03, 0.1, 0.3, 1.0)
Value = Callable[[str, float, int], float | None]
"""Of a method's label, a step size and a split."""


@dataclass
class Known:
    """A bench whose trials come to known values."""

    value: Value
    of: Prepared = field(default_factory=prepared)
    measure: Measure = field(default_factory=lambda: Measure(GOALS["accuracy"], 2))
    made: list[Trial] = field(default_factory=list)
    seconds: float = 1.0

    def rows(self, split: int) -> Prepared:
        return self.of

    def run(self, trials: Sequence[Trial], on_progress: Any = None) -> list[Outcome]:
        self.made += trials
        return [Outcome(self.value(trial.tree["algorithm"]["name"], trial.tree["algorithm"]["lr"], trial.split), torch.zeros(1),
                        seconds=self.seconds) for trial in trials]


def method(label: str, after: str | None = None) -> Method:
    return Method(label, "opponent", {"algorithm": {"name": label}}, after)


def searched(value: Value, tried: Sequence[Method] = (method(FIRST),), **options: Any) -> tuple[list[Chosen], Known]:
    bench = Known(value)
    return Search(bench, BASE, tried, Setting(rounds=3), **{"splits": 1, "lrs": GRID, **options}).run(), bench


def at(best: float) -> Value:
    return lambda label, lr, split: -abs(math.log(lr / best))


@pytest.fixture(autouse=True)
def _twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.fitting.search.GROWTH", 2)


@pytest.mark.parametrize(("best", "more"), [(0.1, []), (1.0, [3.0]), (50.0, [3.0, 10.0]), (0.03, [0.01]), (1e-6, [0.01, 0.003])])
def test_a_grid_grows_beyond_the_edge_that_is_the_best_and_only_there(best: float, more: list[float]) -> None:
    (chosen,), bench = searched(at(best))
    tried = sorted([*GRID, *more])
    assert [lr for lr, _ in chosen.tried] == tried
    assert chosen.lr == min(tried, key=lambda lr: abs(math.log(lr / best)))
    assert [(lr, value) for lr, value in chosen.tried] == [(lr, at(best)(FIRST, lr, 0)) for lr in tried]
    assert len(bench.made) == len(tried)


def test_one_value_grows_to_either_side() -> None:
    (chosen,), _ = searched(at(0.1), lrs=(0.3,))
    assert [lr for lr, _ in chosen.tried] == [0.1, 0.3, 1.0]
    assert chosen.lr == 0.1


def test_every_method_has_a_grid_of_its_own() -> None:
    best = {FIRST: 0.1, "B": 9.0}
    chosen, _ = searched(lambda label, lr, split: at(best[label])(label, lr, split), [method(FIRST), method("B")])
    assert [(own.label, own.lr, len(own.tried)) for own in chosen] == [(FIRST, 0.1, 4), ("B", 10.0, 6)]


def test_step_sizes_that_diverge_are_worse_than_all_others() -> None:
    (chosen,), _ = searched(lambda label, lr, split: None if lr >= 0.1 else -1e9)
    assert chosen.lr is not None
    assert chosen.lr < 0.1
    assert dict(chosen.tried)[0.3] is None


def test_where_all_step_sizes_diverge_smaller_ones_are_tried() -> None:
    (chosen,), _ = searched(lambda label, lr, split: lr if lr < 0.02 else None)
    assert chosen.lr == 0.01
    with pytest.raises(ConfigError, match=r"FedAvg diverged at every step size of \[0.003, 0.01, 0.03, 0.1, 0.3, 1.0\]"):
        searched(lambda label, lr, split: None)


def test_a_method_that_diverges_everywhere_is_left_out_and_so_is_what_begins_with_it() -> None:
    tried = [method(FIRST), method("B"), method("C", after="B"), method("D", after=FIRST)]
    chosen, bench = searched(lambda label, lr, split: None if label == "B" else 0.5, tried, splits=2)
    assert [own.label for own in chosen] == [FIRST, "D"]
    assert not any(trial.tree["algorithm"]["name"] == "C" for trial in bench.made)


def test_a_method_begins_with_the_model_of_the_other_at_its_best_on_the_same_split() -> None:
    tried = [method("C", after=FIRST), method(FIRST)]
    chosen, bench = searched(at(0.1), tried, splits=3, seed=5)
    assert [own.label for own in chosen] == ["C", FIRST]  # in the order that was given
    later = [trial for trial in bench.made if trial.tree["algorithm"]["name"] == "C"]
    assert len(later) == 4 + 2
    for trial in later:
        assert trial.start is not None
        assert trial.start == chosen[1].trials[trial.split]
        assert (trial.start.tree["algorithm"]["lr"], trial.start.split) == (0.1, trial.split)


def test_finals_are_made_on_other_splits_with_other_seeds_and_their_mean_chooses() -> None:
    values = {(FIRST, 0): 0.6, (FIRST, 1): 0.6, (FIRST, 2): 0.6, ("B", 0): 0.9, ("B", 1): 0.1, ("B", 2): 0.2}
    chosen, bench = searched(lambda label, lr, split: values[label, split] - (lr != 0.3), [method(FIRST), method("B")], splits=3, seed=7)
    assert [(trial.split, trial.tree["federation"]["seed"]) for trial in chosen[1].trials] == [(0, 7), (1, 8), (2, 9)]
    assert all(trial.tree["algorithm"]["lr"] == 0.3 for trial in chosen[1].trials)
    assert [own.value for own in chosen] == [pytest.approx(0.6), pytest.approx(0.4)]
    assert best_of(chosen).label == FIRST
    assert len(bench.made) == 2 * 4 + 2 * 2


def test_of_equals_the_plainer_is_kept_and_one_that_diverges_on_a_split_is_not() -> None:
    chosen, _ = searched(lambda label, lr, split: 0.5, [method(FIRST), method("B")], splits=2)
    assert best_of(chosen).label == FIRST
    chosen, _ = searched(lambda label, lr, split: None if label == "B" and split else float(label == "B"),
                         [method(FIRST), method("B")], splits=2)
    assert (best_of(chosen).label, chosen[1].value) == (FIRST, -math.inf)


def test_further_splits_and_wider_grids_wait_for_time() -> None:
    chosen, bench = searched(at(50.0), splits=3, clock=Clock(minutes=0.01))  # 0.6 s, and a trial takes one
    assert len(bench.made) == 4
    assert len(chosen[0].outcomes) == 1


def test_splits_that_lose_a_rare_class_are_passed_over() -> None:
    rare = {"rows": 60, "positives": lambda row: row % 12 == 0, "sites": 1, "sensitive": None}
    lost = [split for split in range(8) if not {0, 1} <= set(prepared(split, **rare).data.split("validation").fields["labels"].tolist())]
    assert 0 not in lost
    bench = Memory(lambda split: prepared(split, **rare), Measure(GOALS["auc"], 2))
    wanted = [split for split in range(1, 20) if split not in lost]
    assert len(lost) > 0
    assert list(further(bench, 5)) == wanted[:4]
    assert list(further(Memory(lambda split: prepared(split), bench.measure), 3)) == [1, 2]  # where no class is rare nothing is looked at


def test_splits_that_lose_a_rare_group_are_passed_over() -> None:
    def rows(split: int) -> Prepared:
        return prepared(split, rows=120, sites=1, rare_group=1, seed=1)

    number = [len(set(rows(split).data.fields[CELLS].tolist())) for split in range(10)]
    assert number[0] == 4
    assert min(number) == 3
    wanted = [split for split in range(1, 10) if number[split] == 4]
    assert list(further(Memory(rows, Measure(GOALS["fair"], 2, "sex", 2)), 4)) == wanted[:3]


def test_thresholds_by_group_decide_with_the_models_of_another_method() -> None:
    bench = Memory(lambda split: prepared(split, rows=500), Measure(GOALS["worst_group"], 2, "sex", 2))
    setting = Setting(rounds=2, local_steps=2, batch=8, sensitive="sex", cells="class and group")
    tried = [own for own in methods(bench.measure.goal, setting) if own.label in (FIRST, f"{FIRST}, thresholds by group")]
    plain, grouped = Search(bench, BASE, tried, setting, lrs=(0.3,), splits=2).run()
    assert grouped.lr == plain.lr
    for own, other, split in zip(plain.outcomes, grouped.outcomes, range(2), strict=True):
        assert torch.equal(own.vector, other.vector)
        assert own.margins[0] == own.margins[1]
        assert other.margins[0] != other.margins[1]
        assert bench.measure.at_sites(job_of(bench.rows(split)), other.vector, by_group=True).value == other.value


# one trial


def test_the_model_that_is_kept_is_the_one_with_the_value() -> None:
    measure = Measure(GOALS["auc"], 2)
    bench = Memory(prepared, measure)
    setting = Setting(rounds=6, batch=8)
    outcome = Search(bench, BASE, methods(measure.goal, setting)[:1], setting, lrs=(0.3,), splits=1).run()[0].outcomes[0]
    history = {int(row["round"]): row["validation goal"] for row in outcome.history}
    assert sorted(history) == [0, 2, 4, 6]
    assert outcome.value == max(history.values())
    assert outcome.round == min(number for number, value in history.items() if value == outcome.value)
    job = job_of(bench.rows(0))
    held = job.held
    zero = held.fields["labels"].numpy() * 0
    rows = Scored.of(job.predict(outcome.vector, held.fields["inputs"]), held.fields["labels"], zero, zero)
    assert measure.of_rows(rows) == pytest.approx(outcome.value, abs=1e-3)


def test_training_that_diverges_before_it_was_ever_better_than_its_start_has_no_value() -> None:
    rows = prepared()
    rows.data.fields["inputs"].mul_(1e18)
    bench = Memory(lambda split: rows, Measure(GOALS["accuracy"], 2))
    plain = methods(bench.measure.goal, Setting(rounds=3, batch=8))[0]
    with pytest.raises(ConfigError, match="FedAvg diverged at every step size"):
        Search(bench, BASE, [plain], Setting(rounds=3, batch=8), lrs=(10.0,), splits=1).run()
