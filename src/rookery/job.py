"""From a description to a federation ready to run, and its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, ConfigError, SitesPart
from .data import Data
from .data.partition import by_quantity, dirichlet, iid, label_shards
from .data.sets import Table, load
from .data.split import hold_out
from .fed import Federation
from .models import federated_norm, mlp, resnet20, small_cnn
from .objectives import cross_entropy, cross_entropy_losses, kl_dro, with_weight_decay
from .problem import Minimization, Problem
from .run import Metrics
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
        self.fed.problem.prepare(self.fed, self.x0)
        return self.config.algorithm.init(self.fed, self.x0)

    def scores(self, state: Any) -> Metrics:
        """Scores on the sites' validation rows and on the test rows."""
        return {**_scores(self.model, state.x, self.held.fields, "validation "), **_scores(self.model, state.x, self.test.fields, "test ")}


def assemble(config: Config) -> Job:
    """Read the data, spread it over sites, build the model and the problem."""
    seed = config.federation.seed
    train, test = load(config.data.name)
    if train.fields["labels"].dim() != 1:
        raise ConfigError(f"{config.data.name!r} has several labels a row; a run from a file needs one")
    site = _sites(config.sites, train.fields["labels"].numpy(), seed)
    data = Data.by_site({name: train.fields[name] for name in ("inputs", "labels")}, site.tolist())
    data, held = hold_out(data, config.data.validation, seed)
    torch.manual_seed(seed)
    model = Model(_net(config, tuple(train.fields["inputs"].shape[1:]), len(train.classes)))
    part = config.federation
    if part.participate is not None and part.participate > len(data.names):
        raise ConfigError(f"federation.participate is {part.participate}, but there are {len(data.names)} sites")
    fed = Federation(_problem(config, model), data, engine=part.engine, weights=part.weights, participate=part.participate, seed=seed)
    return Job(config, fed, model, model.vector(), held, test)


def _sites(part: SitesPart, labels: NDArray[np.int64], seed: int) -> NDArray[np.str_]:
    match part.how:
        case "iid":
            return iid(len(labels), part.number, seed)
        case "shards":
            return label_shards(labels, part.number, part.per_site, seed)
        case "quantity":
            return by_quantity(len(labels), part.number, part.alpha, seed=seed, least=2)
        case "dirichlet":
            return dirichlet(labels, part.number, part.alpha, seed)


def _net(config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
    part, flat = config.model, int(np.prod(shape))
    match part.name:
        case "linear":
            return nn.Sequential(nn.Flatten(), *mlp(flat, classes))
        case "mlp":
            return nn.Sequential(nn.Flatten(), *mlp(flat, *part.hidden, classes))
    if len(shape) != 3:
        raise ConfigError(f"model.name = {part.name!r} takes images; {config.data.name!r} has rows of shape {shape}: write \"mlp\"")
    return small_cnn(shape[0], classes, shape[1]) if part.name == "small_cnn" else federated_norm(resnet20(classes, shape[0]))


def _problem(config: Config, model: Model) -> Problem:
    part = config.objective
    problem: Problem = cross_entropy(model) if part.name == "cross_entropy" else kl_dro(cross_entropy_losses(model), part.lam, model=model)
    if part.weight_decay:
        if not isinstance(problem, Minimization):
            raise ConfigError(f"objective.weight_decay goes with cross_entropy; {part.name} has no plain term to add it to")
        problem = with_weight_decay(problem, part.weight_decay)
    return problem


def _scores(model: Model, x: Tensor, fields: dict[str, Tensor], prefix: str) -> Metrics:
    output, labels = model.predict(x, fields["inputs"]), fields["labels"]
    right, present = (output.argmax(1) == labels).double(), sorted(set(labels.tolist()))
    scores = {"loss": float(F.cross_entropy(output, labels)), "accuracy": float(right.mean()),
              "worst class": float(min(right[labels == c].mean() for c in present))}
    if output.shape[1] == 2 and len(present) == 2:
        margin = (output[:, 1] - output[:, 0]).numpy()
        scores |= {"AUC": float(roc_auc_score(labels.numpy(), margin)), "AP": float(average_precision_score(labels.numpy(), margin))}
    return {prefix + name: value for name, value in scores.items()}
