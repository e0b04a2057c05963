"""Reference lines that are never kept: every site alone, and models of rows that are pooled in one place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..data import Data
from ..errors import Diverged, NonFinite
from ..federation.federation import Federation
from ..federation.placed import Placed
from ..metrics.personal import Adaptation
from ..objectives import cross_entropy
from ..problems.kinds import Minimization
from ..studies.build import Prepared
from ..studies.job import Job

MANY = 4096  # more inputs than this are pictures, which a model of columns does not fit


def alone(fed: Federation[Minimization], job: Job, rounds: int, local_steps: int, batch: int,
          lrs: tuple[float, ...]) -> tuple[Placed, float]:
    """Every site's own model, which stays there, after as many steps as in the federation, and the step size; the one that is best on
    validation rows. `fed` has the sites with plain cross-entropy.
    """
    found: list[tuple[float, float, Placed]] = []
    for lr in lrs:
        fed.counters = dict.fromkeys(fed.counters, 0)
        own = Adaptation(lr, rounds * local_steps, batch).of(fed, job.given.vector)
        with suppress(Diverged, NonFinite):
            found.append((job.evaluation.at_clients(fed, own, "validation")["loss"], lr, own))
    if not found:
        raise Diverged(f"every site alone diverges at all step sizes of {list(lrs)}, on these rows: scale the inputs")
    _, lr, kept = min(found, key=lambda one: one[0])
    return kept, lr


def collected_alone(job: Job, rounds: int, local_steps: int, batch: int, lrs: tuple[float, ...]) -> tuple[Tensor, float]:
    """The same in a simulation, which has the models of all sites at hand."""
    fed = Federation(cross_entropy(job.model), job.fed.data, engine="auto", seed=job.fed.setting.seed, device=job.fed.data.device,
                     min_batch=job.fed.setting.min_batch)
    kept, lr = alone(fed, job, rounds, local_steps, batch, lrs)
    return fed.collect(kept), lr


def pooled(rows: Prepared, seed: int, balanced: bool) -> dict[str, Callable[[Tensor], Tensor]]:
    """Models of all sites' training rows in one place, as functions from inputs to outputs of each class.

    balanced: whether classes weigh the same, as for a goal that is about the rare one
    """
    data = rows.data
    inputs, labels = data.fields["inputs"].flatten(1).cpu().numpy(), data.fields["labels"].cpu().numpy()
    if inputs.shape[1] > MANY or len(np.unique(labels)) < len(rows.test.classes):
        return {}
    weights: Any = "balanced" if balanced else None
    models = {"pooled, logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, class_weight=weights)),
              "pooled, gradient boosting": HistGradientBoostingClassifier(random_state=seed, class_weight=weights, early_stopping=True)}
    return {name: _outputs(model.fit(inputs, labels)) for name, model in models.items()}


def _outputs(model: Any) -> Callable[[Tensor], Tensor]:
    def outputs(inputs: Tensor) -> Tensor:
        return torch.from_numpy(np.log(model.predict_proba(inputs.flatten(1).cpu().numpy()).clip(1e-12)))

    return outputs


def of_owners(job: Job, vectors: Tensor, rows: Data) -> Tensor:
    """The outputs for rows of some sites, each by its own site's model."""
    parts = [job.predict(vectors[job.fed.data.names.index(name)], rows.views(place)["inputs"]) for place, name in enumerate(rows.names)]
    return torch.cat(parts)
