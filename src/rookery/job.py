"""From a description to a federation ready to run, its scores, and what a finished run leaves in its folder."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from . import __version__
from .checkpoint import write_whole
from .config import Config, describe
from .data import Data
from .data.sets import Table
from .data.split import hold_out
from .engines import Wire
from .errors import CheckpointError, ConfigError
from .fed import Federation
from .objectives.dro import Exponential, dro_report
from .run import Callback, Metrics, Run, refuse_taken, run
from .study import machine
from .vector import Model


@dataclass(frozen=True)
class Job:
    """A run to be made: the federation, the model with its starting point, and the rows to score on."""

    config: Config
    fed: Federation
    model: Model
    x0: Tensor
    held: Data  # the sites' validation rows
    test: Table

    def start(self) -> Any:
        """The algorithm's first state, after the sites have agreed on what the problem needs."""
        size = self.model.size
        x = torch.cat([self.config.warm_up.from_there(self.fed, self.model, self.x0[:size]), self.x0[size:]])
        self.fed.problem.prepare(self.fed, x)
        return self.config.algorithm.init(self.fed, x)

    def scores(self, state: Any) -> Metrics:
        """Scores on the sites' validation rows and on the test rows."""
        parts = {"validation": self.held.fields, "test": self.test.fields}
        found = {f"{part} {name}": value for part, fields in parts.items() for name, value in self._score(state.x, fields).items()}
        if isinstance(self.fed.problem, Exponential):
            found |= dro_report(self.fed, state.x, getattr(state, "y", None))
        return found

    def predict(self, x: Tensor, inputs: Tensor) -> Tensor:
        output: Tensor = self.model.predict(x[: self.model.size], inputs)
        return output

    def _score(self, x: Tensor, fields: dict[str, Tensor]) -> Metrics:
        output = self.predict(x, fields["inputs"])
        return _scores(output, fields["labels"]) | self.config.objective.scores(output, fields)

    def run(self, folder: Path | None, label: str, resume: bool = False, minutes: float | None = None, callbacks: Sequence[Callback] = (),
            about: dict[str, Any] | None = None) -> Run:
        """Train, and leave in the folder, if there is one, what a report is made of: history, test predictions and `about.json`."""
        part, before = self.config.run, self.config.warm_up.rounds
        if before > part.rounds:
            raise ConfigError(f"warm_up.rounds is {before}, but the run has {part.rounds} rounds in all: raise run.rounds")
        if folder is not None:
            self._claim(folder, resume)
        clock, minutes = time.perf_counter(), part.minutes if minutes is None else minutes
        state = self.start()
        spent = time.perf_counter() - clock if before else 0.0
        result = run(self.config.algorithm, self.fed, state, part.rounds - before, self.scores, part.every, folder=folder, resume=resume,
                     save_every=part.save_every, minutes=None if minutes is None else max(0.0, minutes - spent / 60), callbacks=callbacks,
                     output=part.output, before=before, spent=spent)
        if result.output is not None:  # the last row is then about the iterate that was drawn
            row = result.history[-1] | self.scores(result.state._replace(x=result.output))
            result.history.append(row)
            if folder is not None:
                with (folder / "history.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")
        if folder is None:
            return result
        x = result.state.x if result.output is None else result.output
        logits = self.predict(x, self.test.fields["inputs"]).double().numpy()
        np.savez(folder / "predictions.npz", labels=self.test.fields["labels"].numpy(),
                 scores=logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits)
        versions = {"rookery": __version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
        told = {"label": label, "title": f"{self.config.objective.name} by {self.config.algorithm.title}",
                "seed": self.config.federation.seed, "command": " ".join(["rookery", *sys.argv[1:]]), "config": describe(self.config),
                "versions": versions, "machine": machine(), "engine": self.fed.engine.name, "reason": result.reason,
                "trouble": result.trouble, "iterate": "last" if result.output is None else "uniform",
                "rounds": before + result.rounds, "seconds": result.seconds, "ledger": self.fed.ledger.to_json(),
                "sites": self.sites(x), "traffic": [asdict(line) for line in result.traffic], **(about or {})}
        write_whole(folder / "about.json", json.dumps(told, indent=1))
        return result

    def _claim(self, folder: Path, resume: bool) -> None:
        """Refuse a folder that holds another run, before any work is done."""
        kept = folder / "description.json"
        own = describe(self.config)
        own["run"] = {name: value for name, value in own.get("run", {}).items() if name == "output"}  # a run may go on for longer
        if not resume:
            refuse_taken(folder)
        elif kept.exists() and json.loads(kept.read_text()) != json.loads(json.dumps(own)):
            raise CheckpointError(f"{folder} holds a run of another description; resume it as {kept} says, or take another folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps(own))

    def sites(self, x: Tensor) -> list[dict[str, Any]]:
        """Every site's rows, and its scores on those it held out; a site that held out none has no scores."""
        binary, table = len(self.test.classes) == 2, []
        for k, name in enumerate(self.fed.data.names):
            labels = self.fed.data.views(k)["labels"]
            row: dict[str, Any] = {"site": name, "rows": len(labels), "positives": int(labels.sum()) if binary else None,
                                   "validation rows": 0}
            if name in self.held.names:
                own = self.held.views(self.held.names.index(name))
                row |= {"validation rows": len(own["labels"]), **self._score(x, own)}
            table.append(row)
        return table


def assemble(config: Config, folder: Path | None = None) -> Job:
    """Read the data, spread it over sites, build the model and the problem. The folder is where sites on a wire keep their state."""
    part, seed = config.federation, config.federation.seed
    train, classes, test = config.data.read(seed)
    site = config.sites.spread(train, classes, seed)
    data = Data.by_site({name: field for name, field in train.fields.items() if name != "site"}, site.tolist())
    data, held = hold_out(data, config.data.validation, seed, groups="group" if "group" in data.fields else None)
    if part.participate is not None and part.participate > len(data.names):
        raise ConfigError(f"federation.participate is {part.participate}, but there are {len(data.names)} sites")
    engine = Wire(folder / "sites") if part.engine == "wire" and folder is not None else part.engine
    torch.manual_seed(seed)
    model = Model(config.model.net(tuple(train.fields["inputs"].shape[1:]), len(train.classes)))
    fed = Federation(config.objective.problem(model, train), data, engine=engine, weights=part.weigh(data),
                     participate=part.participate, min_batch=part.min_batch, seed=seed)
    x0 = torch.cat([model.vector(), torch.zeros(config.objective.extra)])
    return Job(config, fed, model, x0, held, test)


def _scores(output: Tensor, labels: Tensor) -> Metrics:
    """Loss, accuracy and worst class of the rows; AUC and AP where there are two classes and rows of both."""
    right, present = (output.argmax(1) == labels).double(), sorted(set(labels.tolist()))
    scores = {"loss": float(F.cross_entropy(output, labels)), "accuracy": float(right.mean()),
              "worst class": float(min(right[labels == c].mean() for c in present))}
    if output.shape[1] == 2 and len(present) == 2:
        margin = (output[:, 1] - output[:, 0]).numpy()
        scores |= {"AUC": float(roc_auc_score(labels.numpy(), margin)), "AP": float(average_precision_score(labels.numpy(), margin))}
    return scores
