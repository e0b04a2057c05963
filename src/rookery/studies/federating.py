"""Runs over real sites: what they agree on before training, and the federations that a description makes at them."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..data.readers.base import NoRows
from ..data.tables.rows import Rows
from ..data.tables.sheet import from_frame
from ..engines.remote import SECONDS, TRIES, Remote
from ..engines.roster import Roster
from ..engines.transport import Transport
from ..errors import CheckpointError, ConfigError
from ..federation.federation import Federation
from ..federation.ledger import Ledger
from ..training.files import write_whole
from ..training.keeper import CHECKPOINT
from .agreement import agree_on_arrays, count_positives, raw_problem
from .build import Prepared, assemble
from .description import Description, describe, parse, read_tree
from .encoding import agreed_encoder, agreed_schema
from .job import Job
from .terms import Terms
from .values import build_section, nearest

if TYPE_CHECKING:
    from ..engines.grpc import Grpc

KEPT = "federation.json"  # in the run's folder: the name by which its sites know it


@dataclass(frozen=True)
class ServerSection:
    """[server] how sites are reached.

    certificates: the folder in which `rookery site invite` made those of the server; without one sites must listen at "unix:" addresses
    seconds:      until when a site must have answered
    tries:        how often it is asked
    quorum:       so many clients must be there for a round; all of them where it is left out
    """

    certificates: str | None = None
    seconds: float = SECONDS
    tries: int = TRIES
    quorum: int | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0 or self.tries < 1 or (self.quorum is not None and self.quorum < 1):
            raise ConfigError(f"seconds, tries and quorum are positive; got {self.seconds:g}, {self.tries} and {self.quorum}")


@dataclass(frozen=True)
class FlareSection:
    """[flare] how jobs are given to NVIDIA FLARE.

    kit:  the folder of an administrator's startup kit
    user: the administrator's name in it
    runs: where the server's folder of runs is seen from here; what a run leaves is downloaded from FLARE where it is not
    """

    kit: str
    user: str
    runs: str | None = None


@dataclass(frozen=True)
class Meeting:
    """A file that says where sites are: [server], [flare], and under [sites] the address of each; paths are meant from where it lies."""

    server: ServerSection
    sites: Mapping[str, str]
    beside: Path
    flare: FlareSection | None = None

    @classmethod
    def read(cls, file: Path) -> Meeting:
        tree, known = read_tree(file), ["server", "flare", "sites"]
        if odd := next((name for name in tree if name not in known), None):
            raise ConfigError(f"{file} has the sections {', '.join(known)}; {nearest(odd, known)}It was given [{odd}]")
        sites = tree.get("sites")
        if not isinstance(sites, dict) or not sites or not all(isinstance(address, str) for address in sites.values()):
            raise ConfigError(f"{file} needs the section [sites], with the address of each below it, as in north = \"10.0.0.7:7443\"")
        flare = build_section(FlareSection, tree["flare"], "flare") if "flare" in tree else None
        return cls(build_section(ServerSection, tree.get("server", {}), "server"), sites, file.resolve().parent, flare)

    @property
    def certificates(self) -> Path | None:
        return None if self.server.certificates is None else self.beside / self.server.certificates

    def transport(self) -> Grpc:
        """To all sites over gRPC; addresses at which none can be called are refused."""
        from ..engines.grpc import Grpc

        for name, address in self.sites.items():
            port = address.rpartition(":")[2]
            if not address.startswith("unix:") and not (re.fullmatch(r".+:[0-9]{1,5}", address) and 0 < int(port) < 65536):
                raise ConfigError(f"a site's address is host:port or unix:path, as in {name} = \"10.0.0.7:7443\"; that of {name!r} in "
                                  f"[sites] is {address!r}")
            if self.certificates is None and not address.startswith("unix:"):
                raise ConfigError(f"{name!r} at {address} answers to the server's certificate only: write certificates = \"certificates\" "
                                  "in [server], the folder that `rookery site invite` made")
        return Grpc(self.sites, self.certificates)

    def reached(self, transport: Transport, run: str) -> Reached:
        return Reached(transport, list(self.sites), run, self.server.seconds, self.server.tries, self.server.quorum)


@dataclass(frozen=True)
class Reached:
    """Sites that a transport reaches, and how long to wait for them.

    run:    the name that they know the run by
    quorum: so many clients must be there for a round; all of them where it is left out
    """

    transport: Transport
    sites: Sequence[str]
    run: str
    seconds: float = SECONDS
    tries: int = TRIES
    quorum: int | None = None

    def greet(self, config: Description, terms: Terms, seed: int) -> tuple[Remote, Roster]:
        """Begin a part of the run at all sites, or go on with it."""
        least, words = config.federation.min_batch, terms.to_json()
        own = sha256(json.dumps([words, seed], sort_keys=True).encode()).hexdigest()[:8]  # the trials of a fit are runs of their own
        engine = Remote(self.transport, seconds=self.seconds, tries=self.tries, run=f"{self.run} {terms.part} {own}")
        # in the order that a simulation has them in, which sums depend on to the last digit
        found = engine.greet(sorted(self.sites), words, seed=seed, precision=config.federation.autocast, min_batch=least)
        strict = max(found.least, key=found.least.__getitem__)
        if found.least[strict] > least:
            raise ConfigError(f"{strict} computes nothing from fewer than {found.least[strict]} rows at once, and federation.min_batch is "
                              f"{least}: write min_batch = {found.least[strict]} in [federation], and batches of at least as many rows")
        return engine, found


@dataclass(frozen=True)
class AtSites:
    """The federations of a run whose rows the sites have prepared alike; `raw` is the one in which they agreed."""

    reached: Reached
    terms: Terms
    raw: Federation[Any]

    @property
    def quorum(self) -> int | None:
        return self.reached.quorum

    def greet(self, config: Description, part: str, seed: int) -> tuple[Remote, Roster]:
        return self.reached.greet(config, replace(self.terms, part=part, run=Terms.of(config, part).run), seed)

    def positives(self) -> list[float]:
        return count_positives(self.raw)


def build_at(config: Description, reached: Reached) -> Job:
    """The job of a description at real sites."""
    return assemble(config, prepare_at(config, reached))


def prepare_at(config: Description, reached: Reached, split: int = 0) -> Prepared:
    """Let sites read their rows, hold some out, and agree on how columns are encoded, or on classes."""
    refuse_pooled(config)
    data, section, setup, notes = config.data, config.federation, Ledger(), list[str]()
    schema = None if data.npz is not None or data.images is not None else agreed_schema(config)
    terms = Terms.of(config, "columns", seed=section.seed, split=split, schema=None if schema is None else schema.to_json(), size=data.size,
                     label=(data.label or "labels") if data.npz is not None else None, positive=data.positive if schema is None else ())

    def made(terms: Terms) -> Federation[Any]:
        engine, roster = reached.greet(config, terms, section.seed)
        return Federation(raw_problem(), roster, engine=engine, only_sums=section.only_sums, min_batch=section.min_batch,
                          seed=section.seed, precision=section.autocast)

    fed = made(terms)
    roster = fed.data
    if (split_of_none := next((name for name, rows in roster.splits.items() if rows is None), None)) is not None:
        raise ConfigError(f"no site can hold {split_of_none} rows out of so few, or without splitting a group: bring more rows, or take "
                          "other shares")
    terms = replace(terms, names=roster.names)
    if schema is None:
        classes, shape = agree_on_arrays(fed, data.category_rows)
        setup.absorb(fed.ledger)
        terms = replace(terms, classes=classes)
        fed = made(terms)  # from here on labels are places among the classes that all sites have
        test: NoRows = NoRows({"inputs": torch.zeros(0, *shape), "labels": torch.zeros(0, dtype=torch.int64)}, classes, data.source)
        named = [classes.index(str(one)) if str(one) in classes else one for one in data.positive]
    else:
        encoder = agreed_encoder(config, fed, schema, setup, notes)
        terms = replace(terms, encoder=encoder.to_json(schema))
        none = np.zeros(0, dtype=np.int64)
        nothing = Rows(from_frame({name: [] for name in schema.inputs}), schema, none, none, data.source)
        test = NoRows({"inputs": torch.zeros(0, len(encoder.names)), "labels": torch.zeros(0, dtype=torch.int64)}, schema.classes,
                      data.source, {**schema.declared, "inputs": encoder.names}, encoder, nothing)
        named = [] if len(schema.classes) == 2 else list(schema.positive)
    return Prepared(roster, test.binary(named) if named else test, tuple(notes), setup, AtSites(reached, terms, fed))


def refuse_pooled(config: Description) -> None:
    """What needs all rows in one place."""
    data, sites = config.data, config.sites
    if data.name is not None:
        raise ConfigError(f"[data] name = \"{data.name}\" is a data set of one place; the rows of real sites are in files of theirs: write "
                          "schema = \"schema.toml\" instead")
    where = next((name for name in ("table", "csv", "site", "test") if getattr(data, name)), None) if data.schema is not None else None
    if where is not None:
        raise ConfigError(f"[data] {where} is about rows in one place, and each real site says in [rows] of its own file where its rows "
                          "are: leave it out")
    if data.test_at != "sites":
        raise ConfigError("the test rows of real sites stay there: write test_at = \"sites\" in [data]")
    thinned = next((name for name in ("keep_positives", "positive_share", "long_tail", "minority") if getattr(data, name)), None)
    if thinned is not None:
        raise ConfigError(f"data.{thinned} makes classes rare for a simulation, and real sites keep all their rows: leave it out")
    if sites.how not in (None, "column") or sites.least > 1:
        what = f"least = {sites.least}" if sites.least > 1 else f"how = \"{sites.how}\""
        raise ConfigError(f"[sites] {what} spreads rows in a simulation, and real sites have their own: leave it out")
    if config.federation.engine not in ("auto", "wire"):
        raise ConfigError(f"federation.engine = \"{config.federation.engine}\" is of a simulation: leave it out")


def name_of(folder: Path, resume: bool, given: str | None = None) -> str:
    """The name by which sites know the run in a folder: a new one, or one that is given, or that of the run to go on with."""
    kept = folder / KEPT
    if resume:
        try:
            found = json.loads(kept.read_text(encoding="utf-8"))["run"]
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{kept} does not say by which name real sites know this run; begin a new one elsewhere") from None
        return str(found)
    # also of a folder at FLARE's server, whose runs keep it from one job to the next
    name = given or re.sub(r"[^A-Za-z0-9._-]+", "-", f"run-{folder.name[:40]}-{secrets.token_hex(8)}")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(kept, json.dumps({"run": name}))
    return name


def passing_name() -> str:
    """A name for sites that are asked what they have and allow, and nothing else."""
    return f"dry-{secrets.token_hex(8)}"


def words_of(config: Description, meeting: Meeting, **more: Any) -> dict[str, Any]:
    """A run in words, for a server elsewhere that is to make it: its description, the schema as a text, and what else there is to say."""
    schema = None if config.data.schema is None else Path(config.data.schema).read_text(encoding="utf-8")
    return {"description": describe(config), "schema": schema, "server": asdict(meeting.server), **more}


def from_words(transport: Transport, sites: Sequence[str], words: dict[str, Any], folder: Path, run: str) -> tuple[dict[str, Any], Reached]:
    """The description that some words hold, whose schema is now a file in the folder, and the sites that a transport reaches."""
    tree = {section: dict(table) for section, table in words["description"].items()}
    if words["schema"] is not None:
        write_whole(folder / "schema.toml", words["schema"])
        tree["data"]["schema"] = str(folder / "schema.toml")
    section = build_section(ServerSection, words["server"], "server")
    return tree, Reached(transport, sites, run, section.seconds, section.tries, section.quorum)


def serve(transport: Transport, sites: Sequence[str], words: dict[str, Any], folder: Path, aborted: Callable[[], bool]) -> None:
    """Make the run that some words describe, or go on with it: what a server runs that was given the words by another one's job.

    aborted: whether whoever gave them wants no more of it; the run then stops after its round, and can be gone on with
    """
    resume = (folder / CHECKPOINT).exists()
    tree, reached = from_words(transport, sites, words, folder, name_of(folder, resume, folder.name))

    def progress(made: int, of: int) -> None:
        write_whole(folder / "progress.json", json.dumps({"round": made, "rounds": of}))
        if aborted():
            raise KeyboardInterrupt

    build_at(parse(tree), reached).run(folder, words["label"] or folder.name, resume, words["minutes"], bundle=True, on_progress=progress)
