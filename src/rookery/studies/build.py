"""From a description to a run: read the data, spread it over sites, build model, problem and federations."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..data import Data
from ..data.partition import spread_alike
from ..data.readers import Table
from ..data.split import hold_out
from ..errors import ConfigError
from ..federation.engine import choose
from ..federation.federation import Federation
from ..metrics.personal import Adaptation
from ..models.norm import has_federated_norm
from ..objectives import balanced_cross_entropy, cross_entropy
from ..objectives.declare import with_site
from ..objectives.given import Given
from ..problems.base import Problem
from ..problems.model import Model
from .choices import ModelSection
from .description import Description
from .job import Job
from .personal import Personal

P = TypeVar("P", bound=Problem)


def build(config: Description, folder: Path | None = None) -> Job:
    """Read the data, spread it over sites, build the model and the problem. The folder is where sites on a wire keep their state."""
    section, seed = config.federation, config.federation.seed
    train, classes, test = config.data.read(seed)
    site = config.sites.spread(train, classes, seed)
    data = Data.by_site({name: field for name, field in train.fields.items() if name != "site"}, site.tolist())
    data, held = hold_out(data, config.data.validation, seed, groups="group" if "group" in data.fields else None)
    if section.clients_per_round is not None and section.clients_per_round > len(data.names):
        raise ConfigError(f"federation.clients_per_round is {section.clients_per_round}, but there are {len(data.names)} sites")
    data = config.objective.rows(data, len(train.classes), seed)
    splits = {"validation": held} | ({} if config.data.test_at == "server" else {"test": _at_sites(config, train, site, test, seed)})
    splits = {name: with_site(rows, data.names) if "site" in data.fields else rows for name, rows in splits.items()}
    data = data.with_splits(**splits).to(section.device)
    torch.manual_seed(seed)
    net = _net(config, tuple(train.fields["inputs"].shape[1:]), len(train.classes))
    given = config.objective.given(Model(net.to(section.device)), data, len(train.classes), config.algorithm.solves)
    problem = config.objective.problem(given, getattr(config.algorithm, "batch", None))
    fed = _federation(config, problem, data, section.weigh(data), seed, folder)
    # another seed than that of the run, which would draw the same rows and cohorts once more
    warm_up = None if config.warm_up.rounds == 0 else _federation(config, balanced_cross_entropy(given.model), data, "samples",
                                                                  seed + 2**32, folder)
    return Job(config, fed, warm_up, given, test, _personal(config, given, data, seed, folder))


def _personal(config: Description, given: Given, data: Data, seed: int, folder: Path | None) -> Personal | None:
    how, section = config.adaptation, config.personal
    if how is None:
        return None
    if has_federated_norm(given.model.net):
        raise ConfigError("[personal] adapts the net at each site, and batch norms would keep the statistics of the common one: take a net "
                          "without them (mlp, small_cnn, lenet), or write steps = 0 in [personal]")
    return Personal(_federation(config, cross_entropy(given.model), data, "samples", seed, folder), how,
                    Adaptation(section.alone_lr, section.alone_steps, section.alone_batch), given.vector)


def _at_sites(config: Description, train: Table, site: NDArray[np.str_], test: Table, seed: int) -> Data:
    """The test rows at the sites: as their own column says, or as the training rows of their class were spread."""
    if config.sites.how == "column":
        owners = config.sites.spread(test, test.fields["labels"].numpy(), seed)
    else:
        owners = spread_alike(train.fields["labels"].numpy(), site, test.fields["labels"].numpy(), seed)
    known = np.isin(owners, site)
    if not known.all():
        raise ConfigError(f"data.test_at = \"sites\" leaves test rows with the sites that train, and {int((~known).sum())} of them belong "
                          f"to {owners[~known][0]!r}, which has no training rows: write test_at = \"server\"")
    return Data.by_site({name: column for name, column in test.fields.items() if name != "site"}, owners.tolist())


def _federation(config: Description, problem: P, data: Data, weights: str | list[float], seed: int, folder: Path | None) -> Federation[P]:
    section, engine = config.federation, choose(config.federation.engine)
    engine.folder = None if folder is None else folder / "sites"
    return Federation(problem, data, engine=engine, weights=weights, clients_per_round=section.clients_per_round, cohorts=section.cohorts,
                      min_batch=section.min_batch, only_sums=section.only_sums, seed=seed, device=section.device,
                      precision=section.autocast)


def _net(config: Description, shape: tuple[int, ...], classes: int) -> nn.Module:
    own = config.objective.declared.net
    if own is None:
        return config.model.net(shape, classes)
    if config.model != ModelSection():
        raise ConfigError(f"{config.objective.name} has a function of its own to train: leave the section [model] out")
    return own(shape)
