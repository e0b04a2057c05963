"""One trial: a run from a description, what becomes of its probabilities by each calibrator, and whether what it leaves says the same."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import torch
from common import timed
from numpy.typing import NDArray

import rookery
from rookery.bundle import Bundle
from rookery.metrics.calibration import Calibrator
from rookery.studies import Job, build, parse
from rookery.studies.assessment import DecisionSection, assess
from rookery.studies.trials import Result, Trial

Probabilities = NDArray[np.float64]
SMALL = "breast-cancer"
DIRICHLET = {"how": "dirichlet", "alpha": 0.5}
# sites, net, rounds and batch; rows of pneumoniamnist are dear
DATA: dict[str, dict[str, Any]] = {
    "mammography": {"sites": {**DIRICHLET, "number": 10}, "model": {"name": "mlp"}, "rounds": 60, "batch": 32},
    "adult": {"sites": {**DIRICHLET, "number": 10}, "model": {"name": "mlp"}, "rounds": 60, "batch": 32},
    "pneumoniamnist": {"sites": {**DIRICHLET, "number": 5}, "model": {"name": "small_cnn"}, "rounds": 30, "batch": 16},
    "sites/stroke": {"sites": {"how": "column", "least": 20}, "model": {"name": "mlp"}, "rounds": 30, "batch": 32},
    SMALL: {"sites": {**DIRICHLET, "number": 3}, "model": {"name": "mlp"}, "rounds": 4, "batch": 16}}
GIVEN = ("adult", "pneumoniamnist")  # their publishers say which rows test
LR, LOCAL_STEPS = 0.1, 5  # of all methods on all data, as in examples/demo
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FedAvg": ({"name": "cross_entropy"}, {"name": "FedAvg"}),
    "FedAvg, class-weighted": ({"name": "balanced_cross_entropy"}, {"name": "FedAvg"}),
    "FedDRO, group DRO": ({"name": "group_dro", "lam": 1.0}, {"name": "FedDRO", "beta": 0.5})}
CALIBRATORS = ("platt", "isotonic", "temperature")


def description(trial: Trial) -> dict[str, dict[str, Any]]:
    own, (objective, algorithm) = DATA[trial["data"]], METHODS[trial["method"]]
    data = {"name": trial["data"], **({} if trial["data"] in GIVEN else {"split_seed": trial["seed"]})}
    return {"data": data, "sites": own["sites"], "model": own["model"],
            "objective": objective, "algorithm": {**algorithm, "lr": LR, "local_steps": LOCAL_STEPS, "batch": own["batch"]},
            "federation": {"seed": trial["seed"]}, "decision": {"calibrate": CALIBRATORS[0]},
            "run": {"rounds": own["rounds"], "every": own["rounds"]}}


@timed
def work(trial: Trial) -> Result:
    job = build.build(parse(description(trial)))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        done = job.run(folder, trial["method"], bundle=True)
        if done.reason != "rounds":
            raise RuntimeError(f"a trial ended by {done.reason!r}: {done.failure}")
        vector, bundle = job.parameters(done.state), rookery.load(folder)
        outputs, labels = job.predict(vector, job.test.fields["inputs"]), job.test.fields["labels"].numpy()
        found: Result = {"rows": len(labels), "observed": float(labels.mean()), "sites": len(job.fed.data.names)}
        for method in CALIBRATORS:
            if method == CALIBRATORS[0]:  # what the run itself tells
                said, calibrator = json.loads((folder / "about.json").read_text())["assessment"], bundle.calibrator
            else:
                assessed = assess(job.fed, vector, job.test, DecisionSection(calibrate=method))  # type: ignore[arg-type]
                said, calibrator = assessed.found, assessed.calibrator
                bundle = replace(bundle, calibrator=calibrator, threshold=assessed.threshold)
            found[method] = told(said, calibrator.probabilities(outputs).numpy(), labels, calibrator)
            if method == CALIBRATORS[0] or trial["exports"]:
                found[method] |= differences(job, bundle, calibrator.probabilities(outputs).numpy(), Path(place) / method)
        found["plain"] = {"AUC": said["AUC"][0], "calibration error": said["calibration error before"],
                          **scores(Calibrator().probabilities(outputs).numpy(), labels)}
    return found


def told(said: dict[str, Any], probabilities: Probabilities, labels: NDArray[np.int64], calibrator: Calibrator) -> Result:
    """What the assessment says, which it has from binned sums, beside what the rows themselves do."""
    own = scores(probabilities, labels)
    return {"calibration error": said["calibration error after"], **own, "binning": abs(own["row error"] - said["calibration error after"]),
            "fitted": float(calibrator.method != "none"), "warned": float(any(w.startswith("the model says") for w in said["warnings"]))}


def scores(probabilities: Probabilities, labels: NDArray[np.int64]) -> Result:
    """Of rows: the mean probability, the calibration error in ten bins, and the Brier score."""
    p = probabilities[:, 1]
    place = np.minimum(np.ceil(p * 10).astype(int), 10).clip(1)
    error = sum(abs(float((p - labels)[place == i].sum())) for i in range(1, 11)) / len(p)
    return {"predicted": float(p.mean()), "row error": error, "Brier": float(((p - labels) ** 2).mean())}


def differences(job: Job, bundle: Bundle, expected: Probabilities, folder: Path) -> Result:
    """The largest differences, over all test rows and classes, of what the saved and the exported models say from the trained one."""
    frame = None if job.test.rows is None else job.test.rows.sheet.frame.iloc[job.test.rows.test].reset_index(drop=True)
    inputs = job.test.fields["inputs"]
    saved = rookery.load(bundle.save(folder / "bundle"))
    ways = {"bundle": saved.predict_proba(inputs if frame is None else frame),
            "ONNX": by_onnx(saved.export("onnx", folder / "model.onnx"), saved, frame, inputs),
            "torch": by_torch(saved.export("torch", folder / "torch"), saved, frame, inputs)}
    return {f"{name} difference": float(np.abs(found - expected).max()) for name, found in ways.items()}


def by_onnx(path: Path, bundle: Bundle, frame: pd.DataFrame | None, inputs: torch.Tensor) -> Probabilities:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    if frame is None:
        given = {"inputs": inputs.numpy()}
    else:
        assert bundle.schema is not None
        given = {one.name: cells(frame[one.name], bundle.schema.missing, one.type) for one in session.get_inputs()}
    found: Probabilities = session.run(["probabilities"], given)[0]
    return found


def cells(column: pd.Series[Any], missing: tuple[str, ...], kind: str) -> NDArray[Any]:
    """A column as the graph takes it: doubles with NaN where it is missing, or texts."""
    if "double" in kind:
        return pd.to_numeric(column.where(~column.isin(missing)), errors="raise").to_numpy(np.float64)[:, None]
    return column.astype(str).to_numpy(object)[:, None]


def by_torch(folder: Path, bundle: Bundle, frame: pd.DataFrame | None, inputs: torch.Tensor) -> Probabilities:
    """By the predict.py that the folder brings along, which does not import Rookery."""
    spec = importlib.util.spec_from_file_location("exported_predict", folder / "predict.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    predictor = module.Predictor(folder)
    found: Probabilities = predictor.probabilities(inputs if frame is None else frame[predictor.columns].to_dict("records")).numpy()
    return found
