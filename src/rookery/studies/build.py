"""From a description to a run: read the data, spread it over sites, build model, problem and federations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data import Data
from ..data.partition import spread_alike
from ..data.readers import Table
from ..data.split import fingerprint, hold_out, hold_out_here
from ..errors import ConfigError
from ..federation.engine import Engine, choose
from ..federation.federation import Federation
from ..federation.generators import seeded
from ..federation.ledger import Ledger
from ..metrics.personal import Adaptation
from ..models.norm import has_federated_norm
from ..objectives import balanced_cross_entropy, cross_entropy
from ..objectives.declare import with_site
from ..objectives.given import Given
from ..problems.base import Problem
from ..problems.kinds import Minimization
from ..problems.model import Model
from .cells import CELLS, Tally, number_cells
from .choices import ModelSection
from .description import Description
from .encoding import Encoding, agree_here
from .job import Job
from .personal import Personal
from .sections import SitesSection

P = TypeVar("P", bound=Problem)
SPLIT = 2**33  # from one seed of held-out rows to the next


def build(config: Description, folder: Path | None = None) -> Job:
    """Read the data, spread it over sites, build the model and the problem. The folder is where sites on a wire keep their state."""
    return assemble(config, prepare(config), folder)


class Elsewhere(Protocol):
    """Real sites, at which a run makes its federations."""

    @property
    def quorum(self) -> int | None:
        """So many clients must be there for a round."""
        ...

    def greet(self, config: Description, part: str, seed: int) -> tuple[Engine, Data]:
        """An engine for a federation of some part of a run, and who its clients are."""
        ...

    def positives(self) -> list[float]:
        """The positive training rows of every client."""
        ...


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that are with their sites, with those that they hold out, before anything is chosen that trains on them.

    test: the rows that the server tests on, with the names of classes and columns
    elsewhere: real sites, which have the rows; `data` and `test` have none then
    tally: how many rows real sites have, where they were asked
    """

    data: Data
    test: Table
    notes: tuple[str, ...] = ()
    setup: Ledger = field(default_factory=Ledger)
    elsewhere: Elsewhere | None = None
    tally: Tally | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How many values columns have, where everybody agrees on them."""
        declared = {} if self.test.rows is None else self.test.rows.schema.declared
        real = {} if self.elsewhere is None else {"labels": len(self.test.classes), "site": len(self.data.names)}
        cells = {} if self.tally is None else {CELLS: len(self.tally.cells)}
        return {name: len(values) for name, values in declared.items()} | real | cells


def prepare(config: Description, split: int = 0) -> Prepared:
    """Read the rows, spread them over sites, let every site hold some out, and agree on how columns are encoded.

    split: which rows are held out; with another number these are others, at the same sites
    """
    seed = config.federation.seed
    train, classes, test = config.data.read(seed)
    sites = config.sites.found(train, config.data.site)
    site = sites.spread(train, classes, seed)
    train, site, notes = _large_enough(train, site, sites.least)
    later = {} if config.data.test_at == "server" else {"test": _at_sites(sites, train, site, test, seed)}
    data, setup = divide(config, train, site, split, later), Ledger()
    if train.rows is not None:
        encoder, said = agree_here(config, train.rows, data, setup)
        encoding = Encoding(encoder, train.rows, said.append)
        data, test = encoding.of(data), test.with_inputs(encoding.inputs, encoder)
        notes = [*notes, *dict.fromkeys(said)]
    return Prepared(data, test, tuple(notes), setup)


def divide(config: Description, train: Table, site: NDArray[np.str_], split: int, later: Mapping[str, Data | None],
           all_here: bool = True) -> Data:
    """The rows with their sites, each of which holds some out; `later` has the test rows, where sites have any.

    all_here: whether these are all rows of a federation, some of which must be held out
    """
    data, seed = Data.by_site(sites_fields(train), site.tolist()), config.federation.seed + SPLIT * split
    data, held = (hold_out if all_here else hold_out_here)(data, config.data.validation, seed, "group" if "group" in data.fields else None)
    later = {**later, "validation": held}
    data = data.with_splits(**{name: rows for name, rows in later.items() if rows is not None})
    return Data(data.fields, data.names, data.sizes, {**later, **data.splits})  # sites may have none of a split that others have


def assemble(config: Description, rows: Prepared, folder: Path | None = None) -> Job:
    """The model, the problem and the federations of a description, on rows that are prepared."""
    section, seed = config.federation, config.federation.seed
    if section.clients_per_round is not None and section.clients_per_round > len(rows.data.names):
        raise ConfigError(f"federation.clients_per_round is {section.clients_per_round}, but there are {len(rows.data.names)} sites")
    shape = tuple(rows.test.fields["inputs"].shape[1:])
    data, given, problem = pose(config, rows.data, shape, len(rows.test.classes), rows.data.names, rows.counts)
    make = _Maker(config, rows, data, folder)
    weights = rows.elsewhere.positives() if section.weights == "positives" and rows.elsewhere is not None else section.weigh(data)
    fed = make(problem, "rows", weights, seed)
    fed.ledger.load(rows.setup.to_json())  # what it took to prepare them belongs to every run
    # another seed than that of the run, which would draw the same rows and cohorts once more
    warm_up = None if config.warm_up.rounds == 0 else make(balanced_cross_entropy(given.model), "warm-up", "samples", seed + 2**32)
    made_up = None if rows.elsewhere is None else lambda: assemble(config, stand_in(rows))
    return Job(config, fed, warm_up, given, rows.test, _personal(config, given, make, seed), rows.notes, made_up)


def stand_in(rows: Prepared, sensitive: str | None = None) -> Prepared:
    """Made-up rows in the place of those that real sites have, of every class and group in turn: what methods send depends on no others.

    sensitive: the column of the groups, where the sites have said what they have of class and group
    """
    shape, cells, classes = rows.test.fields["inputs"].shape[1:], () if rows.tally is None else rows.tally.cells, len(rows.test.classes)
    # so many of a site that batches and guards have enough, and pictures are no burden
    sizes = np.minimum(rows.data.sizes, max(32, min(256, 2**24 // (shape.numel() * len(rows.data.names)))))
    turn = torch.from_numpy(np.resize(cells or range(classes), int(sizes.sum())))
    fields = {"inputs": torch.randn(len(turn), *shape, generator=torch.Generator().manual_seed(0)), "labels": turn % classes}
    own = {name: torch.arange(len(turn)) % len(values) for name, values in rows.test.names.items() if name != "inputs"}
    own |= {} if sensitive is None else {sensitive: turn // classes}
    data = Data(fields | own, rows.data.names, sizes)
    return replace(rows, data=data if sensitive is None else number_cells(data, sensitive, classes), elsewhere=None)


def plain_federation(config: Description, rows: Prepared) -> Federation[Minimization]:
    """The sites with plain cross-entropy of a description's model, whatever its objective: for what each of them counts or trains alone."""
    shape = tuple(rows.test.fields["inputs"].shape[1:])
    data, given, _ = pose(config, rows.data, shape, len(rows.test.classes), rows.data.names, rows.counts)
    return _Maker(config, rows, data, None)(cross_entropy(given.model), "personal", "samples", config.federation.seed)


def pose(config: Description, rows: Data, shape: tuple[int, ...], classes: int, names: Sequence[str],
         counts: Mapping[str, int]) -> tuple[Data, Given, Problem]:
    """What is minimised over rows: these with the columns that the objective reads, what it is given, and the problem.

    names:  those of all clients, also where only some have their rows here
    counts: how many values columns have, of those that everybody agrees on
    """
    section = config.federation
    data = config.objective.rows(rows, classes, section.seed, names)
    splits = {name: with_site(held, names) if held is not None and "site" in data.fields else held for name, held in rows.splits.items()}
    data = (Data(data.fields, data.names, data.sizes, splits) if data.fields else rows).to(section.device)
    with seeded(section.seed, torch.device("cpu")):
        net = _net(config, shape, classes)
        given = config.objective.given(Model(net.to(section.device)), data, classes, config.algorithm.solves, counts)
        return data, given, config.objective.problem(given, getattr(config.algorithm, "batch", None))


def _personal(config: Description, given: Given, make: _Maker, seed: int) -> Personal | None:
    how, section = config.adaptation, config.personal
    if how is None:
        return None
    if has_federated_norm(given.model.net):
        raise ConfigError("[personal] adapts the net at each site, and batch norms would keep the statistics of the common one: take a net "
                          "without them (mlp, small_cnn, lenet), or write steps = 0 in [personal]")
    return Personal(make(cross_entropy(given.model), "personal", "samples", seed), how,
                    Adaptation(section.alone_lr, section.alone_steps, section.alone_batch), given.vector)


def sites_fields(table: Table) -> dict[str, Tensor]:
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


def _at_sites(sites: SitesSection, train: Table, site: NDArray[np.str_], test: Table, seed: int) -> Data:
    """The test rows at the sites: as their own column says, or as the training rows of their class were spread."""
    if sites.how == "column":
        owners = sites.spread(test, test.fields["labels"].numpy(), seed)
    else:
        owners = spread_alike(train.fields["labels"].numpy(), site, test.fields["labels"].numpy(), seed)
    known = np.isin(owners, site)
    if not known.all() and sites.least == 1:
        raise ConfigError(f"data.test_at = \"sites\" leaves test rows with the sites that train, and {int((~known).sum())} of them belong "
                          f"to {str(owners[~known][0])!r}, which has no training rows: write test_at = \"server\", or least in [sites]")
    return Data.by_site({name: column[torch.from_numpy(known)] for name, column in sites_fields(test).items()}, owners[known].tolist())


@dataclass(frozen=True)
class _Maker:
    """Makes the federations of a run: over rows that are here, or at real sites."""

    config: Description
    rows: Prepared
    data: Data
    folder: Path | None

    def __call__(self, problem: P, part: str, weights: str | list[float], seed: int) -> Federation[P]:
        section, elsewhere = self.config.federation, self.rows.elsewhere
        if elsewhere is None:
            engine, data = choose(section.engine), self.data
            engine.folder = None if self.folder is None else self.folder / "sites"
        else:
            engine, data = elsewhere.greet(self.config, part, seed)
        return Federation(problem, data, engine=engine, weights=weights, clients_per_round=section.clients_per_round,
                          cohorts=section.cohorts, min_batch=section.min_batch, only_sums=section.only_sums, seed=seed,
                          device=section.device, precision=section.autocast, quorum=None if elsewhere is None else elsewhere.quorum)


def _net(config: Description, shape: tuple[int, ...], classes: int) -> nn.Module:
    own = config.objective.declared.net
    if own is None:
        return config.model.net(shape, classes)
    if config.model != ModelSection():
        raise ConfigError(f"{config.objective.name} has a function of its own to train: leave the section [model] out")
    return own(shape)
