"""Omniglot (Lake, Salakhutdinov, Tenenbaum, Science 2015): 1 623 characters of 50 alphabets, each drawn 20 times."""

from __future__ import annotations

import csv
import re
import zipfile
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import DataError
from ..folder import fetch, folder, present
from .base import Table, numbers
from .images import decode

URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
FILES = {"images_background": ("68d2efa1b9178cc56df9314c21c6e718", 964), "images_evaluation": ("6b91aef0f799c5bb55b94e3f2daec811", 659)}
SIDE, DRAWINGS = 105, 20
_NAME = re.compile(r"images_\w+/(?P<alphabet>[^/]+)/(?P<character>character\d+)/(?P<id>\d+)_(?P<drawing>\d+)\.png")


class _Drawings(NamedTuple):
    images: NDArray[np.float32]
    character: list[int]  # the number in the file name, 1 to 1 623
    alphabet: list[str]
    called: dict[int, str]  # character → Alphabet/characterNN


def omniglot(size: int = 28) -> tuple[Table, Table]:
    """The background (964 characters, 30 alphabets) and the evaluation set (659 characters, 20 alphabets).

    Images have shape (1, size, size) with ink 1 and paper 0, averaged over areas of the published 105 × 105 ones. Labels count the
    characters of both sets; field `alphabet` has the alphabet, field `drawing` which of the twenty drawings it is.
    """
    background, evaluation = (_read(part, size) for part in FILES)
    return _tables([background, evaluation])


def omniglot_splits(size: int = 28) -> dict[str, Table]:
    """The usual few-shot parts `train`, `val` and `test` (1 028, 172 and 423 characters; Vinyals et al., 2016).

    The lists are read from `omniglot/splits.csv` (columns alphabet, character, split) or from `omniglot/train.txt`, `val.txt` and
    `test.txt` (lines Alphabet/characterNN, perhaps with /rotNNN, as in the code of prototypical networks).
    """
    part_of = _lists()
    both = _tables([_read(part, size) for part in FILES])
    parts = {}
    for part in ("train", "val", "test"):
        rows = [np.asarray([part_of.get(name) == part for name in table.values("labels")]) for table in both]
        fields = {field: torch.cat([table.fields[field][torch.from_numpy(own)] for table, own in zip(both, rows, strict=True)])
                  for field in both[0].fields}
        parts[part] = Table(fields, both[0].classes, f"omniglot {part}", both[0].names)
    return parts


def _tables(parts: list[_Drawings]) -> tuple[Table, Table]:
    called = {number: name for part in parts for number, name in part.called.items()}
    place = {number: i for i, number in enumerate(sorted(called))}
    alphabets = tuple(sorted({name for part in parts for name in part.alphabet}))
    first, second = (Table({
        "inputs": torch.from_numpy(part.images), "labels": numbers([place[number] for number in part.character]),
        "alphabet": numbers([alphabets.index(name) for name in part.alphabet]),
        "drawing": numbers(np.arange(len(part.character)) % DRAWINGS),
    }, tuple(called[number] for number in sorted(called)), "omniglot", {"alphabet": alphabets}) for part in parts)
    return first, second


def _read(part: str, size: int) -> _Drawings:
    """By character, then drawing. An archive that is there may be packed anew: its contents are checked, not its bytes."""
    if not 1 <= size <= SIDE:
        raise DataError(f"the size of an Omniglot image must lie between 1 and {SIDE}, not {size}")
    checksum, characters = FILES[part]
    path = fetch(f"omniglot/{part}.zip", f"{URL}{part}.zip", checksum, remade=True)
    try:
        with zipfile.ZipFile(path) as archive:
            matches = [match for name in archive.namelist() if (match := _NAME.fullmatch(name))]
            found = sorted(((int(match["id"]), int(match["drawing"]), match) for match in matches), key=lambda key: key[:2])
            ids = sorted({number for number, _, _ in found})
            if len(ids) != characters or [key[:2] for key in found] != [(i, k) for i in ids for k in range(1, DRAWINGS + 1)]:
                raise DataError(f"{path} must hold {characters} characters drawn {DRAWINGS} times each, but holds {len(ids)} characters "
                                f"and {len(found)} drawings; download it again from {URL}{part}.zip")
            images = np.empty((len(found), 1, size, size), dtype=np.float32)
            for start in range(0, len(found), DRAWINGS):
                names = [match[0] for _, _, match in found[start : start + DRAWINGS]]
                ink = np.stack([_ink(decode(archive.read(name), name, "L"), name) for name in names])
                images[start : start + DRAWINGS, 0] = _averages(size) @ ink @ _averages(size).T
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} must be a whole zip archive, but {error}; delete it and download it again from {URL}{part}.zip") from None
    called = {number: f"{match['alphabet']}/{match['character']}" for number, _, match in found}
    return _Drawings(images.clip(0, 1), [number for number, _, _ in found], [match["alphabet"] for _, _, match in found], called)


def _ink(image: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    if image.shape != (SIDE, SIDE):
        raise DataError(f"Omniglot images must be {SIDE} × {SIDE}, but {name} is {image.shape[0]} × {image.shape[1]}")
    return (image < 128).astype(np.float32)


def _averages(size: int) -> NDArray[np.float32]:
    """Row i holds the weight of each published pixel in pixel i: the share of its interval that it covers."""
    edges = np.arange(size + 1) * (SIDE / size)
    covered = np.minimum(edges[1:, None], np.arange(1, SIDE + 1)) - np.maximum(edges[:-1, None], np.arange(SIDE))
    weights: NDArray[np.float32] = (covered.clip(0) * (size / SIDE)).astype(np.float32)
    return weights


def _lists() -> dict[str, str]:
    table = present("omniglot/splits.csv")
    if table is not None:
        with table.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        if not rows or not {"alphabet", "character", "split"} <= set(rows[0]):
            raise DataError(f"{table} must have the columns alphabet, character and split; it has {sorted(rows[0]) if rows else 'no rows'}")
        return {f"{row['alphabet']}/{row['character']}": row["split"] for row in rows}
    lists = {part: present(f"omniglot/{part}.txt") for part in ("train", "val", "test")}
    found = {"/".join(line.split("/")[:2]): part for part, path in lists.items() if path is not None
             for line in path.read_text(encoding="utf-8").split()}
    if None in lists.values():
        raise DataError(f"the few-shot split needs omniglot/splits.csv, or train.txt, val.txt and test.txt of "
                        f"https://github.com/jakesnell/prototypical-networks (data/omniglot/splits/vinyals); put them into "
                        f"{folder() / 'omniglot'}, or set ROOKERY_DATA to a folder that has them")
    return found
