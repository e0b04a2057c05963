"""Where rows were and what was sent, said so that a simulation does not pass for a federation."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import several
from .numbers import Method

LOCAL = ("auto", "loop", "vectorised")  # engines without a frame; what is after a colon is what `auto` chose
WIRE = "wire"
RAY = "ray"
REMOTE = "remote"
HOW = {"iid": " by chance", "dirichlet": " by Dirichlet draws, so that sites differ in their shares of the classes",
       "shards": " so that each has a few of the classes", "quantity": " by chance, in unequal sizes",
       "column": " as a column of the table says", "pooled": ", which has all of them"}


def place(found: Sequence[Method]) -> str:
    """One paragraph: what ran where, what is meant by traffic, and who had the test rows; nothing of runs that do not say."""
    engines = {method.label: {_engine(record.about.get("engine")) for record in method.records} for method in found}
    every = {engine for some in engines.values() for engine in some}
    counts = sorted({len(sites) for method in found for record in method.records if (sites := record.about.get("sites"))})
    if not counts or not every <= {*LOCAL, WIRE, RAY, REMOTE}:
        return ""
    sites = several(counts[0], "site") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} sites"
    if every == {REMOTE}:
        return (f"The rows were at {sites} with processes of their own, which answered a server that has none. What is said of exchanges "
                "and bytes crossed the network between them; no row is part of it, though values can reveal something of rows. The test "
                "rows were at the sites, which scored them and sent sums.")
    if REMOTE in every:
        framed = ", ".join(label for label, some in engines.items() if REMOTE in some)
        return f"The rows of {framed} were at real sites; other runs are simulations, in which one program had all rows. " + _tests(found)
    where = "in one process on one machine"
    if RAY in every:
        where = "in the processes of a Ray cluster" + (", in part" if len(every) > 1 else "")
    said = f"This was a simulation {where}, with the rows spread over {sites}{_how(found)}. "
    if every == {WIRE}:
        said += "Server and sites spoke through the frames of bytes that a network would carry, and none of them left the process. "
    elif WIRE in every:
        framed = ", ".join(label for label, some in engines.items() if WIRE in some)
        said += f"In runs of {framed} server and sites spoke through real frames of bytes, none of which left the process. "
    said += "What is said of exchanges and bytes is what would have crossed a network; no row is part of it, though values can reveal "
    return said + "something of rows. " + _tests(found)


def _engine(told: str | None) -> str:
    return (told or "").partition(":")[0]


def _how(found: Sequence[Method]) -> str:
    """How rows came to the sites, where all runs say the same."""
    said = set()
    for method in found:
        for record in method.records:
            config = record.about.get("config", {})
            named = config.get("data", {}).get("site") or str(config.get("data", {}).get("name")).startswith("sites/")
            said.add(HOW.get(str(config.get("sites", {}).get("how", "column" if named else "")), ""))
    return said.pop() if len(said) == 1 else ""


def tests_at(method: Method) -> str:
    """Who has a method's test rows: "sites", or the "server", which has them where nothing is said."""
    return str((method.first("config") or {}).get("data", {}).get("test_at", "server"))


def _tests(found: Sequence[Method]) -> str:
    scored = [method for method in found if any(name.startswith("test ") for name in method.records[-1].history[-1])]
    if not scored:
        return ""
    at = {tests_at(method) for method in scored}
    if at == {"server"}:
        return ("The test rows were at the server, which scored them itself: real sites would have to hand such rows over, or score them "
                "where they are, as with test_at\u00a0=\u00a0\"sites\".")
    if at == {"sites"}:
        return "The test rows were at the sites, which score them and send sums, as real sites would."
    return ("The test rows were at the server for some methods and at the sites for others: their scores come about differently.")
