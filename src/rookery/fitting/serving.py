"""A fit that another one's server makes at its sites: in words on the way there, and from its files on the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..engines.transport import Transport
from ..errors import ConfigError, EngineError
from ..studies.description import parse
from ..studies.encoding import agreed_schema
from ..studies.federating import KEPT, Meeting, from_words, name_of, refuse_pooled, words_of
from ..training.files import write_whole
from .bench import ANY
from .finishing import FIT, method_folder
from .fit import USED, fit
from .goals import find_goal
from .options import Fitted, Options
from .training import Tree

MADE = "fit"  # in the folder of the run: that of the fit


def fit_words(base: Tree, goal: str, options: Options, meeting: Meeting) -> dict[str, Any]:
    """A fit in words; mistakes are said before anybody is asked."""
    find_goal(goal)
    config = parse({**ANY, **base})
    refuse_pooled(config)
    if config.data.schema is not None:
        agreed_schema(config)
    return words_of(config, meeting, goal=goal, options=asdict(options))


def serve(transport: Transport, sites: Sequence[str], words: dict[str, Any], folder: Path, aborted: Callable[[], bool]) -> None:
    """Make the fit that some words describe, or go on with it: what a server runs that was given the words by another one's job.

    aborted: whether whoever gave them wants no more of it; trials that are done stay, and the fit can be gone on with
    """
    tree, reached = from_words(transport, sites, words, folder, name_of(folder, (folder / KEPT).exists(), folder.name))

    def tell(what: str, done: float, number: float) -> None:
        write_whole(folder / "progress.json", json.dumps({"what": what, "done": done, "of": number}))
        if aborted():
            raise EngineError("the job was aborted")

    base = {section: table for section, table in tree.items() if section in USED}
    fit(base, words["goal"], folder / MADE, Options(**words["options"]), tell, reached=reached)


def fitted(folder: Path) -> Fitted:
    """What a fit came to that was made elsewhere, and whose files are here."""
    try:
        told = json.loads((folder / FIT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"{folder / FIT} of the fit did not come back, or is not whole; the same command asks for it again") from None
    methods = [method_folder(folder, row["label"]) for row in told["rows"]]
    return Fitted(folder, told, [folder, *(method for method in methods if method.is_dir())])
