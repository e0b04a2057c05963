"""A user's own arrays: NPZ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import DataError
from ..folder import locate
from ..split import by_hash, fingerprint, hold_apart, split
from .base import NoRows, Table, arrays, codes, numbers, pixels


def read_npz(path: str | Path, label: str = "labels", inputs: str = "inputs", *, test: str | Path | None = None,
             test_share: float = 0.25, seed: int = 0, site: str | None = None, group: str | None = None,
             apart: str | None = None) -> tuple[Table, Table]:
    """The training and test rows of an NPZ file: arrays with one entry a row, among them the inputs and the labels.

    Inputs of bytes are pixels, of shape (n, h, w) or (n, h, w, c); other inputs become float32 as they are. All other arrays of
    whole numbers or texts become fields too. Test rows come from the file `test` or are split off, as by `read_csv`; where every site
    chooses by itself, `apart` names the site that has all rows, unless an array says whose they are.
    """
    first = labelled_arrays(locate(path), label, inputs)
    for wanted in (site, group):
        if wanted is not None and wanted not in first:
            raise DataError(f"{Path(path).name} has no array {wanted!r}; it has {sorted(first)}")
    if test is not None:
        second = labelled_arrays(locate(test), label, inputs)
        if set(second) != set(first):
            raise DataError(f"the test file must have the arrays of the training file, {sorted(first)}, but has {sorted(second)}")
    else:
        if apart is not None and group is not None:  # the same groups at all sites, as of a table
            held = by_hash(fingerprint(np.asarray(texts(first[group]))), test_share, seed, "test")
            if held.all() or not (held.any() or apart):
                raise DataError(f"{len(set(texts(first[group])))} values of {group!r} are too few to set a share of {test_share:g} aside "
                                "for the test; give a file of test rows, or another share")
        elif apart is not None:
            owner = np.full(len(first[label]), apart) if site is None else np.asarray(texts(first[site]))
            held = hold_apart(first[label], owner, test_share, seed)
        else:
            held = np.zeros(len(first[label]), dtype=bool)
            held[split(first[label], test_share, seed=seed, groups=None if group is None else first[group]).test] = True
        first, second = ({name: array[rows] for name, array in first.items()} for rows in (~held, held))
    fields = [{"inputs": torch.from_numpy(part[inputs])} for part in (first, second)]
    names: dict[str, tuple[str, ...]] = {}
    called = {label: "labels", site: "site", group: "group"}
    for name in first:
        if name != inputs and first[name].ndim == 1:
            field = called.get(name, name)
            names[field], found = codes(*(texts(part[name]) for part in (first, second)))
            for own, places in zip(fields, found, strict=True):
                own[field] = numbers(places)
    classes, stem = names.pop("labels"), Path(path).stem
    train = Table(fields[0], classes, stem, names)
    return train, Table(fields[1], classes, stem, names) if len(fields[1]["inputs"]) else NoRows.of(train)


def labelled_arrays(path: Path, label: str, inputs: str) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file with an entry for each row, inputs as numbers of 32 bits."""
    found = arrays(path)
    for wanted in (inputs, label):
        if wanted not in found:
            raise DataError(f"{path.name} has no array {wanted!r}; it has {sorted(found)}: say which it is with inputs= or label=")
    for name, array in found.items():
        if array.ndim == 0 or len(array) != len(found[label]) or len(array) == 0:
            raise DataError(f"every array of {path.name} must have one entry a row, at least one: {label!r} has shape "
                            f"{found[label].shape}, {name!r} has {array.shape}")
    labels = found[label]
    if labels.ndim != 1:
        raise DataError(f"labels must be whole numbers or texts, one a row, but {label!r} of {path.name} has shape {labels.shape}")
    if labels.dtype.kind == "f" and len(odd := np.flatnonzero(~(np.isfinite(labels) & (labels == np.floor(labels))))):
        raise DataError(f"labels must be whole numbers or texts, one a row, but {label}[{odd[0]}] of {path.name} is {labels[odd[0]]}; "
                        "round or bin them, or drop these rows, first")
    found[inputs] = as_inputs(found[inputs], f"{inputs}{{}} of {path.name}")
    return found


def texts(array: NDArray[Any]) -> list[str]:
    """The values by name; whole numbers are the same with and without a point, and yes and no are 1 and 0."""
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    floats = array.dtype.kind == "f" and bool((np.abs(array) < 2**53).all()) and bool((array == np.floor(array)).all())
    return [str(value) for value in (array.astype(np.int64) if floats else array).tolist()]


def as_inputs(array: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Numbers of 32 bits, bytes as pixels; `where` names a place in it."""
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return pixels(array[:, None] if array.ndim == 3 else array.transpose(0, 3, 1, 2)).numpy()
    if array.dtype.kind not in "fiub":
        raise DataError(f"inputs must be numbers, but are {array.dtype}; a table with texts is better kept as CSV")
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        raise DataError(f"inputs must be finite, as 32-bit numbers too, but {where.format(bad[0].tolist())} is {array[tuple(bad[0])]}; "
                        "drop these rows or fill them in")
    return found
