"""From a description to a run: read the data, spread it over sites, build model, problem and federations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data import Data
from ..data.partition import spread_alike
from ..data.readers import Table
from ..data.split import hold_out
from ..data.tables.encoder import Category, Encoder
from ..data.tables.rows import Rows, fingerprint
from ..errors import ConfigError
from ..federation.engine import choose
from ..federation.federation import Federation
from ..federation.ledger import Ledger
from ..metrics.personal import Adaptation
from ..models.norm import has_federated_norm
from ..objectives import balanced_cross_entropy, cross_entropy
from ..objectives.declare import with_site
from ..objectives.given import Given
from ..problems.base import Problem
from ..problems.model import Model
from .agreement import agree, raw_fields, raw_problem
from .choices import ModelSection
from .description import Description
from .job import Job
from .personal import Personal
from .sections import SitesSection

P = TypeVar("P", bound=Problem)
SPLIT = 2**33  # from one seed of held-out rows to the next


def build(config: Description, folder: Path | None = None) -> Job:
    """Read the data, spread it over sites, build the model and the problem. The folder is where sites on a wire keep their state."""
    return assemble(config, prepare(config), folder)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that are with their sites, with those that they hold out, before anything is chosen that trains on them.

    test: the rows that the server tests on, with the names of classes and columns
    """

    data: Data
    test: Table
    notes: tuple[str, ...] = ()
    setup: Ledger = field(default_factory=Ledger)


def prepare(config: Description, split: int = 0) -> Prepared:
    """Read the rows, spread them over sites, let every site hold some out, and agree on how columns are encoded.

    split: which rows are held out; with another number these are others, at the same sites
    """
    seed = config.federation.seed
    train, classes, test = config.data.read(seed)
    sites = config.sites.found(train, config.data.site)
    site = sites.spread(train, classes, seed)
    train, site, notes = _large_enough(train, site, sites.least)
    data = Data.by_site(_fields(train), site.tolist())
    data, held = hold_out(data, config.data.validation, seed + SPLIT * split, groups="group" if "group" in data.fields else None)
    later = None if config.data.test_at == "server" else _at_sites(sites, train, site, test, seed)
    setup = Ledger()
    if train.rows is not None:
        encoding = _agree(config, train.rows, data, setup)
        data, held = (encoding.of(rows) for rows in (data, held))
        train, test = (table.with_inputs(encoding.inputs, encoding.encoder) for table in (train, test))
        later, notes = None if later is None else encoding.of(later), [*notes, *encoding.notes]
    splits = {"validation": held} | ({} if later is None else {"test": later})
    return Prepared(data.with_splits(**splits), test, tuple(notes), setup)


def assemble(config: Description, rows: Prepared, folder: Path | None = None) -> Job:
    """The model, the problem and the federations of a description, on rows that are prepared."""
    section, seed = config.federation, config.federation.seed
    if section.clients_per_round is not None and section.clients_per_round > len(rows.data.names):
        raise ConfigError(f"federation.clients_per_round is {section.clients_per_round}, but there are {len(rows.data.names)} sites")
    classes, splits = len(rows.test.classes), {name: held for name, held in rows.data.splits.items() if held is not None}
    data = config.objective.rows(rows.data, classes, seed)
    splits = {name: with_site(held, data.names) if "site" in data.fields else held for name, held in splits.items()}
    data = data.with_splits(**splits).to(section.device)
    torch.manual_seed(seed)
    net = _net(config, tuple(rows.data.forms()["inputs"].shape), classes)
    given = config.objective.given(Model(net.to(section.device)), data, classes, config.algorithm.solves)
    problem = config.objective.problem(given, getattr(config.algorithm, "batch", None))
    fed = _federation(config, problem, data, section.weigh(data), seed, folder)
    fed.ledger.load(rows.setup.to_json())  # what it took to prepare them belongs to every run
    # another seed than that of the run, which would draw the same rows and cohorts once more
    warm_up = None if config.warm_up.rounds == 0 else _federation(config, balanced_cross_entropy(given.model), data, "samples",
                                                                  seed + 2**32, folder)
    return Job(config, fed, warm_up, given, rows.test, _personal(config, given, data, seed, folder), rows.notes)


def _personal(config: Description, given: Given, data: Data, seed: int, folder: Path | None) -> Personal | None:
    how, section = config.adaptation, config.personal
    if how is None:
        return None
    if has_federated_norm(given.model.net):
        raise ConfigError("[personal] adapts the net at each site, and batch norms would keep the statistics of the common one: take a net "
                          "without them (mlp, small_cnn, lenet), or write steps = 0 in [personal]")
    return Personal(_federation(config, cross_entropy(given.model), data, "samples", seed, folder), how,
                    Adaptation(section.alone_lr, section.alone_steps, section.alone_batch), given.vector)


def _fields(table: Table) -> dict[str, Tensor]:
    """The columns that sites have: a group is a number that is the same wherever its name is."""
    fields = {name: field for name, field in table.fields.items() if name != "site"}
    if "group" in fields and "group" in table.names:
        fields["group"] = torch.from_numpy(fingerprint(table.values("group")))
    return fields


def _large_enough(train: Table, site: NDArray[np.str_], least: int) -> tuple[Table, NDArray[np.str_], list[str]]:
    """The training rows of sites that have at least so many of them."""
    names, place, sizes = np.unique(site, return_inverse=True, return_counts=True)
    kept = sizes[place] >= least
    if kept.all():
        return train, site, []
    if not kept.any():
        raise ConfigError(f"sites.least is {least}, and no site has so many training rows; the largest has {sizes.max()}")
    said = (f"{int((sizes < least).sum())} of {len(names)} sites have fewer than least = {least} training rows, {int((~kept).sum())} in "
            "all, and are left out")
    return train.take(kept), site[kept], [said]


@dataclass(frozen=True)
class _Encoding:
    """What the sites agreed on, all rows of the table encoded by it, and what there was to say about cells."""

    encoder: Encoder
    inputs: Tensor
    notes: list[str]

    def of(self, data: Data) -> Data:
        """Rows whose inputs were their numbers."""
        return Data({**data.fields, "inputs": self.inputs[data.fields["inputs"]]}, data.names, data.sizes)


def _agree(config: Description, rows: Rows, data: Data, ledger: Ledger) -> _Encoding:
    """The sites' encoder: from sums over their training rows, and from names of categories."""
    section, notes = config.federation, list(rows.notes)
    raw, at = raw_fields(rows.sheet, rows.schema, notes.append), data.fields["inputs"]
    own = Data({name: field[at] for name, field in raw.items()}, data.names, data.sizes)
    fed = Federation(raw_problem(), own, engine=choose(section.engine), only_sums=section.only_sums, min_batch=section.min_batch,
                     seed=section.seed)
    encoder = agree(fed, rows.schema, config.data.category_rows)
    ledger.absorb(fed.ledger)
    shared = [column.name for column in encoder.columns if isinstance(column, Category) and column.other]
    if shared:
        notes.append(f"values of {', '.join(map(repr, shared[:6]))} that no site has {config.data.category_rows} training rows of share "
                     "one column each, \"other\": declare them under categories in the schema to tell them apart")
    empty = next((c for c in encoder.columns if isinstance(c, Category) and not c.categories), None)
    if empty is not None:
        notes.append(f"no site has {config.data.category_rows} training rows of any value of {empty.name!r}, which says nothing then: "
                     "declare its categories in the schema, or lower data.category_rows")
    inputs = torch.from_numpy(encoder(rows.sheet, rows.schema, notes.append))
    return _Encoding(encoder, inputs, list(dict.fromkeys(notes)))


def _at_sites(sites: SitesSection, train: Table, site: NDArray[np.str_], test: Table, seed: int) -> Data:
    """The test rows at the sites: as their own column says, or as the training rows of their class were spread."""
    if sites.how == "column":
        owners = sites.spread(test, test.fields["labels"].numpy(), seed)
    else:
        owners = spread_alike(train.fields["labels"].numpy(), site, test.fields["labels"].numpy(), seed)
    known = np.isin(owners, site)
    if not known.all() and sites.least == 1:
        raise ConfigError(f"data.test_at = \"sites\" leaves test rows with the sites that train, and {int((~known).sum())} of them belong "
                          f"to {owners[~known][0]!r}, which has no training rows: write test_at = \"server\", or least in [sites]")
    return Data.by_site({name: column[torch.from_numpy(known)] for name, column in _fields(test).items()}, owners[known].tolist())


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
