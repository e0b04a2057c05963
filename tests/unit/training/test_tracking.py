"""Trackers write every metric against the round."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from rookery import RookeryError
from rookery.training.tracking import TrackingError, tracker


def test_trackers_write_every_metric_against_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            logged.append((name, value, step))

        def flush(self) -> None:
            pass

    class Client:
        def __init__(self, tracking_uri: str) -> None:
            assert tracking_uri == f"sqlite:///{tmp_path / 'mlflow.db'}"

        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            return name

        def create_run(self, experiment: str, run_name: str) -> Any:
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id=f"{experiment}/{run_name}"))

        def log_metric(self, run: str, name: str, value: float, step: int) -> None:
            assert run == "rookery/mine"
            logged.append((name, value, step))

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", types.SimpleNamespace(MlflowClient=Client))
    row = {"round": 4, "bytes": 10, "test loss": 0.5}
    tracker("tensorboard", tmp_path, "mine")(row)
    assert logged == [("axes/bytes", 10, 4), ("test/loss", 0.5, 4)]
    logged.clear()
    tracker("mlflow", tmp_path, "mine")(row)
    assert logged == [("bytes", 10, 4), ("test loss", 0.5, 4)]
    with pytest.raises(TrackingError, match="tensorboard or mlflow; got 'wandb'"):
        tracker("wandb", tmp_path, "mine")
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(RookeryError, match=r"pip install 'rookery\[tracking\]'"):
        tracker("mlflow", tmp_path, "mine")
