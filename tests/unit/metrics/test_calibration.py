"""Calibrators fitted to sums are those of the pooled rows, on every engine, and never turn the order of rows round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from rookery import Data, Federation, Model
from rookery.errors import DataError, NonFinite, ProblemError
from rookery.metrics import class_sums, from_sums
from rookery.metrics.calibration import Calibrator, calibrate, calibration_sums
from rookery.objectives import cross_entropy

ENGINES = ["loop", "vectorised", "wire", "auto"]
METHODS = ["platt", "temperature", "isotonic"]
Rows = tuple[Tensor, Tensor]


def federation(clients: Mapping[str, Rows], classes: int = 2, **options: Any) -> tuple[Federation[Any], Tensor]:
    """Clients whose rows' inputs are their outputs, as the model is the identity; one more client has no validation rows."""
    parts = {name: {"inputs": outputs, "labels": labels} for name, (outputs, labels) in clients.items()}
    train = parts | {"no validation": {"inputs": torch.zeros(1, classes), "labels": torch.zeros(1, dtype=torch.long)}}
    data = Data.from_parts(train).with_splits(validation=Data.from_parts(parts))
    return Federation(cross_entropy(Model(nn.Linear(classes, classes, bias=False))), data, **options), torch.eye(classes).flatten()


def drawn(rows: int, classes: int = 2, *, sharpness: float = 3.0, shift: float = 1.0, seed: int = 0) -> Rows:
    """Labels drawn by a softmax, and outputs that exaggerate it by a factor and favour the last class."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (rows, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return torch.from_numpy(sharpness * logits + shift * np.eye(classes)[-1]).float(), torch.from_numpy(labels)


def shared(rows: Rows) -> dict[str, Rows]:
    """Unequal clients, of which one has negatives only where there are two classes."""
    outputs, labels = rows
    order = torch.cat([(labels != 0).nonzero(), (labels == 0).nonzero()])[:, 0]
    cuts = np.cumsum([len(labels) // 2, len(labels) // 5, 3]).tolist()
    return {f"c{k}": (outputs[i], labels[i]) for k, i in enumerate(order.tensor_split(cuts))}


def margin_of(outputs: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = (outputs[:, 1].double() - outputs[:, 0].double()).numpy()
    return found


def logistic(margin: NDArray[np.float64], labels: NDArray[Any], weight: NDArray[np.float64] | None = None) -> tuple[float, float]:
    """Slope and intercept by scikit-learn, of scores brought to unit spread."""
    scale = margin.std()
    fit = LogisticRegression(C=1e10, tol=1e-10, max_iter=1000).fit(margin[:, None] / scale, labels, weight)
    return float(fit.coef_[0, 0]) / scale, float(fit.intercept_[0])


def platt(margin: NDArray[np.float64], y: NDArray[Any]) -> tuple[float, float]:
    """The same with Platt's targets: each row as one of both classes, by weights."""
    positives, negatives = (y == 1).sum(), (y == 0).sum()
    target = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    return logistic(np.tile(margin, 2), np.repeat([1, 0], len(y)), np.concatenate([target, 1 - target]))


@pytest.mark.parametrize("rows", [60, 20_000])
def test_platt_is_the_logistic_regression_of_the_pooled_rows_on_platts_targets(rows: int) -> None:
    outputs, labels = drawn(rows)
    fed, x = federation(shared((outputs, labels)))
    found = calibrate(fed, x)
    assert (found.slope, found.intercept) == pytest.approx(platt(margin_of(outputs), labels.numpy()), rel=2e-3)
    if rows == 20_000:  # of so many, the targets are as good as 1 and 0, and what was done to the outputs is undone
        assert (found.slope, found.intercept) == pytest.approx(logistic(margin_of(outputs), labels.numpy()), rel=2e-3)
        assert (found.slope, found.intercept) == pytest.approx((1 / 3, -1 / 3), abs=0.05)


@pytest.mark.parametrize(("rows", "size"), [(1, 0.001), (5, 3.0), (1000, 100.0)])
def test_separated_rows_have_the_slope_of_platts_targets(rows: int, size: float) -> None:
    """At margins ±m with n rows each, the fit meets the targets: sigmoid(slope · m) = (n + 1) / (n + 2)."""
    outputs = torch.tensor([[0.0, -size], [0.0, size]]).repeat_interleave(rows, 0)
    fed, x = federation({"a": (outputs, torch.tensor([0, 1]).repeat_interleave(rows))})
    found = calibrate(fed, x)
    assert found.slope * size == pytest.approx(math.log(rows + 1), rel=1e-6)
    assert found.intercept == pytest.approx(0, abs=1e-6)


def test_close_scores_among_wide_ones_take_a_second_exchange_and_are_fitted() -> None:
    """Half of the rows lie within a hundredth; far below them there are negatives alone, whose scores matter as much."""
    rng = np.random.default_rng(0)
    close, low = rng.normal(0, 0.002, 4000), rng.uniform(-0.05, -0.02, 4000)
    margin = np.concatenate([close, low])
    labels = np.concatenate([rng.random(4000) < 1 / (1 + np.exp(-300 * close)), np.zeros(4000)]).astype(int)
    outputs = torch.from_numpy(np.stack([np.zeros(8000), margin], 1)).float()
    fed, x = federation(shared((outputs, torch.from_numpy(labels))))
    found = calibrate(fed, x)
    assert fed.ledger["evaluation"].exchanges == 2
    assert (found.slope, found.intercept) == pytest.approx(platt(margin_of(outputs), labels), rel=2e-3, abs=1e-3)


def test_isotonic_is_scikit_learns_where_a_bin_has_one_score_and_close_to_it_elsewhere() -> None:
    outputs, labels = drawn(6000, sharpness=1.0)
    coarse = (outputs * 4).round() / 4
    for rows, tolerance in ((coarse, 1e-9), (outputs, 0.003)):
        fed, x = federation(shared((rows, labels)))
        found, margin = calibrate(fed, x, method="isotonic"), margin_of(rows)
        exact = IsotonicRegression(out_of_bounds="clip").fit(margin, labels.numpy())
        points = np.linspace(-12, 12, 500)
        assert np.abs(found.positive(torch.from_numpy(points)).numpy() - exact.predict(points)).mean() < tolerance


def golden(loss: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is lowest, by golden sections."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return (low + high) / 2


@pytest.mark.parametrize(("classes", "sharpness"), [(2, 3.0), (3, 0.2), (5, 12.0)])
def test_a_temperature_is_that_of_the_least_loss_of_the_pooled_rows(classes: int, sharpness: float) -> None:
    outputs, labels = drawn(800, classes, sharpness=sharpness, shift=0.0)
    fed, x = federation(shared((outputs, labels)), classes)
    found = calibrate(fed, x, classes=classes, method="temperature")

    def loss(slope: float) -> float:
        return float(nn.functional.cross_entropy(slope * outputs.double(), labels, label_smoothing=classes / (800 + classes)))

    assert found.slope == pytest.approx(golden(loss, 0.01, 60), rel=1e-4)
    account = fed.ledger["evaluation"]
    assert (account.exchanges, account.samples) == (2, 2 * 800)
    assert account.floats_up == 2 * 5 * (classes + 62 + (4 if classes == 2 else 0))


@pytest.mark.parametrize(("rows", "size"), [(1, 0.1), (5, 3.0), (500, 100.0)])
def test_separated_rows_have_the_temperature_of_smoothed_labels(rows: int, size: float) -> None:
    outputs = torch.tensor([[0.0, -size], [0.0, size]]).repeat_interleave(rows, 0)
    fed, x = federation({"a": (outputs, torch.tensor([0, 1]).repeat_interleave(rows))})
    assert calibrate(fed, x, method="temperature").slope * size == pytest.approx(math.log(2 * rows + 1), rel=1e-4)


@pytest.mark.parametrize(("size", "slope", "words"), [(0.01, 50, "largest"), (62.5, 1 / 50, "least")])
def test_a_temperature_beyond_the_slopes_is_at_their_end(size: float, slope: float, words: str) -> None:
    """Four rows of five are right: the margin 2 · size wants a slope of log 4 / (2 · size)."""
    outputs = torch.tensor([[size, -size], [-size, size]]).repeat(50, 1)
    fed, x = federation({"a": (outputs, torch.tensor([0, 1] * 40 + [1, 0] * 10))})
    found = calibrate(fed, x, method="temperature")
    assert found.slope == pytest.approx(slope)
    assert words in found.note


@pytest.mark.parametrize("method", METHODS)
def test_engines_agree_and_book_the_same(method: Any) -> None:
    rows = shared(drawn(300))
    feds = [federation(rows, engine=engine) for engine in ENGINES]
    first, *others = (calibrate(fed, x, method=method) for fed, x in feds)
    assert first.method == method
    for other in others:
        torch.testing.assert_close(*(c.positive(torch.linspace(-9, 9, 50)) for c in (other, first)), rtol=1e-7, atol=1e-9)
    account = feds[0][0].ledger["evaluation"]
    assert all(fed.ledger == feds[0][0].ledger for fed, _ in feds)
    assert account.exchanges == (2 if method == "temperature" else 1)
    assert account.floats_up == (2 * 5 * 68 if method == "temperature" else 5 * (3 + 4 * 1024))


@pytest.mark.parametrize("method", METHODS)
def test_calibration_lowers_the_error_and_the_loss_of_exaggerated_scores_on_other_rows(method: Any) -> None:
    fed, x = federation(shared(drawn(4000, shift=0.0)))
    outputs, labels = drawn(4000, shift=0.0, seed=1)
    found = calibrate(fed, x, method=method)
    before, after = (from_sums(class_sums(c.probabilities(outputs).clamp_min(1e-12).log(), labels, 2).sum(0), 2)
                     for c in (Calibrator(), found))
    assert after["ECE"] < 0.3 * before["ECE"]
    assert after["Brier"] < before["Brier"]
    assert after["accuracy"] == pytest.approx(before["accuracy"], abs=0.01)


def test_both_kinds_of_sums_come_in_one_pass() -> None:
    outputs, labels = drawn(200)
    fed, x = federation(shared((outputs, labels)))
    found = calibration_sums(fed, x)
    assert fed.ledger["evaluation"].exchanges == 1
    assert found.rows.tolist() == found.histogram.sum(1).tolist() == [(labels == 0).sum(), (labels == 1).sum()]
    margin = margin_of(outputs)
    np.testing.assert_allclose(found.margins.sum(1), [margin[labels.numpy() == c].sum() for c in (0, 1)])
    np.testing.assert_allclose(found.losses[30], nn.functional.cross_entropy(outputs.double(), labels, reduction="sum"))  # of slope 1
    assert len(found.losses) == 61
    at_clients = calibration_sums(fed, fed.broadcast(x))  # of a value at the clients, such as models of their own
    torch.testing.assert_close(at_clients, found)


def test_a_client_below_the_least_rows_shows_none() -> None:
    rows = shared(drawn(300)) | {"tiny": (torch.tensor([[9.0, -9.0], [0.0, 3.0]]), torch.tensor([1, 1]))}
    (fed, x), (without, _) = federation(rows, min_batch=4), federation({k: rows[k] for k in ("c0", "c1", "c3")})
    assert len(rows["c2"][1]) == 3
    for method in METHODS:
        assert calibrate(fed, x, method=method) == calibrate(without, x, method=method)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ENGINES)
def test_without_rows_of_a_class_there_is_no_calibration(engine: str, method: Any) -> None:
    outputs, labels = drawn(40)
    fed, x = federation({"a": (outputs[labels == 1], labels[labels == 1])}, engine=engine)
    found = calibrate(fed, x, method=method)
    assert found == Calibrator()
    assert "needs" in found.note
    nobody, _ = federation({"a": (outputs, labels)}, engine=engine, min_batch=41)
    assert calibrate(nobody, x, method=method) == Calibrator()


@pytest.mark.parametrize("method", METHODS)
def test_scores_the_wrong_way_round_and_scores_all_the_same_are_left_as_they_are(method: Any) -> None:
    outputs, labels = drawn(500, shift=0.0)
    for wrong in (-outputs, torch.full_like(outputs, 0.1)):
        fed, x = federation(shared((wrong, labels)))
        found = calibrate(fed, x, method=method)
        assert found == Calibrator()
        assert found.note


def test_a_temperature_does_without_a_class_if_two_are_there() -> None:
    outputs, labels = drawn(400, 3)
    fed, x = federation({"a": (outputs[labels > 0], labels[labels > 0])}, 3)
    assert calibrate(fed, x, classes=3, method="temperature").method == "temperature"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_outputs_that_are_not_finite_are_refused_by_the_client_s_name(engine: str, method: Any) -> None:
    outputs, labels = drawn(40)
    fed, x = federation({"a": (outputs, labels), "bad": (outputs * 1e30, labels)}, engine=engine)
    with pytest.raises(NonFinite, match="bad"):
        calibrate(fed, 1e10 * x, method=method)


def test_labels_beyond_the_classes_are_refused() -> None:
    fed, x = federation({"a": drawn(40, 3)}, 3)
    fed.data.split("validation").fields["labels"][0] = 3  # type: ignore[union-attr]
    with pytest.raises(DataError, match="from 0 to 2"):
        calibrate(fed, x, classes=3, method="temperature")


CALIBRATORS = [Calibrator(), Calibrator("platt", 0.3, -2.0), Calibrator("temperature", 4.0),
               Calibrator("isotonic", knots=(-2.0, -1.0, 0.5, 3.0), values=(0.0, 0.25, 0.25, 0.9))]


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=lambda c: c.method)
def test_probabilities_sum_to_one_and_keep_the_order(calibrator: Calibrator) -> None:
    outputs = torch.stack([torch.zeros(81), torch.linspace(-40, 40, 81)], 1)
    p = calibrator.probabilities(outputs)
    assert p.dtype == torch.float64
    torch.testing.assert_close(p.sum(1), torch.ones(81, dtype=torch.float64))
    torch.testing.assert_close(p[:, 1], calibrator.positive(outputs[:, 1]))
    assert bool((p[1:, 1] >= p[:-1, 1]).all())


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=lambda c: c.method)
def test_above_the_margin_of_a_probability_a_row_is_more_probable_than_that(calibrator: Calibrator) -> None:
    for probability in (0.05, 0.25, 0.5, 0.95):
        at = calibrator.margin_at(probability)
        below, above = calibrator.positive(torch.tensor([max(at, -1e3), min(at, 1e3)]) + torch.tensor([-1e-3, 1e-3])).tolist()
        assert below <= probability or at == -math.inf
        assert above > probability or at == math.inf
    assert CALIBRATORS[3].margin_at(0.25) == 0.5  # the right end of what is flat
    assert CALIBRATORS[3].margin_at(0.95) == math.inf


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=lambda c: c.method)
def test_a_calibrator_comes_back_from_a_file(calibrator: Calibrator) -> None:
    assert Calibrator.from_json(json.loads(json.dumps(calibrator.to_json()))) == calibrator
    assert Calibrator.from_json({"method": "temperature", "slope": 2}).slope == 2


@pytest.mark.parametrize(("call", "words"), [
    (lambda: Calibrator("plat"), "none, platt, temperature, isotonic; got 'plat'"),  # type: ignore[arg-type]
    (lambda: Calibrator("platt", -1.0), "a slope above 0"), (lambda: Calibrator("platt", 1.0, math.nan), "finite"),
    (lambda: Calibrator(slope=2.0), "leave them out"), (lambda: Calibrator("temperature", 2.0, 1.0), "leave them out"),
    (lambda: Calibrator(knots=(1.0,), values=(1.0,)), "only \"isotonic\" has knots"), (lambda: Calibrator("isotonic"), "knots"),
    (lambda: Calibrator("isotonic", knots=(0.0, 0.0), values=(0.1, 0.2)), "increase"),
    (lambda: Calibrator("isotonic", knots=(0.0, 1.0), values=(0.2, 0.1)), "rise"),
    (lambda: Calibrator("isotonic", knots=(0.0, 1.0), values=(0.2, 1.1)), "from 0 to 1"),
    (lambda: Calibrator("platt").probabilities(torch.zeros(2, 3)), "method=\"temperature\""),
    (lambda: Calibrator().probabilities(torch.zeros(2)), r"got \(2,\)"), (lambda: Calibrator().margin_at(1.0), "between 0 and 1; got 1.0"),
    (lambda: Calibrator.from_json({"metod": "platt"}), "entries method, slope.*metod"),
    (lambda: Calibrator.from_json({"slope": "2"}), "its slope is '2'"), (lambda: Calibrator.from_json({"slope": True}), "True"),
    (lambda: Calibrator.from_json({"method": "isotonic", "knots": 3.0}), "its knots is 3.0"),
    (lambda: Calibrator.from_json([]), "to_json"),  # type: ignore[arg-type]
    (lambda: calibration_sums(*federation({"a": drawn(40)}), slopes=torch.ones(1, 40, 1)), r"slopes are one vector; .*\(1, 40, 1\)"),
    (lambda: calibrate(*federation({"a": drawn(9, 3)}, 3), classes=3), "\"platt\" is for two classes; got 3"),
    (lambda: calibrate(*federation({"a": drawn(9)}), method="plat"), "method is one of")])  # type: ignore[arg-type]
def test_mistakes_are_told(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        call()
