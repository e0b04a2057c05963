"""Histories in TensorBoard or MLflow, as callbacks of a run. Needs the extra `tracking`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import RookeryError
from .result import Callback, Metrics

AXES = ("round", "exchanges", "bytes", "samples", "seconds")


class TrackingError(RookeryError):
    """A tracker that is not there."""


def tracker(name: str, folder: Path, run: str) -> Callback:
    """The callback of that name; its files go to the run's folder, MLflow's where MLflow is told to keep them."""
    makers = {"tensorboard": tensorboard, "mlflow": mlflow}
    if name not in makers:
        raise TrackingError(f"a run is tracked by {' or '.join(makers)}; got {name!r}")
    return makers[name](folder, run)


def tensorboard(folder: Path, run: str) -> Callback:
    """Every metric against the round; the other axes are metrics of their own: `tensorboard --logdir FOLDER`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrackingError("TensorBoard is not installed: pip install 'rookery[tracking]'") from None
    writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def write(row: Metrics) -> None:
        for name, value in row.items():
            if name != "round":
                writer.add_scalar(f"axes/{name}" if name in AXES else name.replace(" ", "/", 1), value, int(row["round"]))
        writer.flush()

    return write


def mlflow(folder: Path, run: str) -> Callback:
    """Every metric against the round, as a run of the experiment `rookery`, where MLFLOW_TRACKING_URI says.

    Without that it goes to FOLDER/mlflow.db: `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db`.
    """
    try:
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise TrackingError("MLflow is not installed: pip install 'rookery[tracking]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / 'mlflow.db').absolute()}"
    client = MlflowClient(tracking_uri=place)
    experiment = client.get_experiment_by_name("rookery")
    id = client.create_experiment("rookery") if experiment is None else experiment.experiment_id
    own = client.create_run(id, run_name=run).info.run_id

    def write(row: Metrics) -> None:
        for name, value in row.items():
            if name != "round":
                client.log_metric(own, name, value, step=int(row["round"]))

    return write
