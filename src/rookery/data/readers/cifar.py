"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): the binary version, or the Python version read without running its pickles."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..folder import members, present
from .base import Table, numbers, pixels

URL = "https://www.cs.toronto.edu/~kriz/"


class Form(NamedTuple):
    """One published archive: its name, md5, folder, files, and the files or keys of the class names."""

    archive: str
    checksum: str
    folder: str
    train: Sequence[str]
    test: str
    meta: Sequence[str]


FORMS = {
    "cifar10": (
        Form("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin",
             [f"data_batch_{k}.bin" for k in range(1, 6)], "test_batch.bin", ["batches.meta.txt"]),
        Form("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py",
             [f"data_batch_{k}" for k in range(1, 6)], "test_batch", ["batches.meta"]),
    ),
    "cifar100": (
        Form("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary",
             ["train.bin"], "test.bin", ["fine_label_names.txt", "coarse_label_names.txt"]),
        Form("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python", ["train"], "test", ["meta"]),
    ),
}


def cifar10() -> tuple[Table, Table]:
    """Colour photographs in ten classes, 50 000 + 10 000 of shape (3, 32, 32)."""
    return _read("cifar10", ["labels"])


def cifar100() -> tuple[Table, Table]:
    """Colour photographs in a hundred classes, 50 000 + 10 000 of shape (3, 32, 32); field `coarse` has the twenty superclasses."""
    return _read("cifar100", ["coarse_labels", "fine_labels"])


def _read(name: str, kinds: list[str]) -> tuple[Table, Table]:
    binary, python = FORMS[name]
    form = python if present(python.folder, python.archive) and not present(binary.folder, binary.archive) else binary
    files = members(form.archive, URL + form.archive, form.checksum,
                    [f"{form.folder}/{file}" for file in [*form.train, form.test, *form.meta]])
    if form is binary:
        texts = [files[f"{form.folder}/{file}"].decode() for file in form.meta]
        classes = [tuple(line.strip() for line in text.splitlines() if line.strip()) for text in texts]
    else:
        meta = _plain(files[f"{form.folder}/{form.meta[0]}"], form.meta[0])
        keys = ["label_names"] if name == "cifar10" else ["fine_label_names", "coarse_label_names"]
        classes = [tuple(word.decode() for word in _entry(meta, key, form.meta[0])) for key in keys]
    read = _binary if form is binary else _python

    def table(parts: Sequence[str]) -> Table:
        images, labels = zip(*(read(files[f"{form.folder}/{part}"], part, kinds) for part in parts), strict=True)
        columns = np.concatenate(labels, axis=1)
        fields = {"inputs": pixels(np.concatenate(images).reshape(-1, 3, 32, 32)), "labels": numbers(columns[-1])}
        if len(kinds) == 1:
            return Table(fields, classes[0], name)
        return Table({**fields, "coarse": numbers(columns[0])}, classes[0], name, {"coarse": classes[1]})

    return table(form.train), table([form.test])


def _binary(content: bytes, name: str, kinds: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Rows of one byte per kind of label (coarse before fine), then 3 × 1 024 bytes of colour planes."""
    width = len(kinds) + 3072
    if not content or len(content) % width:
        raise DataError(f"{name} must have rows of {width} bytes, but has {len(content)} bytes; unpack its archive again")
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
    return rows[:, len(kinds):], rows[:, : len(kinds)].T


def _python(content: bytes, name: str, kinds: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = _plain(content, name)
    images = _entry(batch, "data", name)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        raise DataError(f"{name} must hold an array of bytes of shape (rows, 3072) under 'data'; take the binary version instead")
    return images, np.asarray([_entry(batch, kind, name) for kind in kinds], dtype=np.int64)


def _entry(batch: dict[bytes, Any], key: str, name: str) -> Any:
    if key.encode() not in batch:
        raise DataError(f"{name} must have an entry {key!r}, but has {sorted(map(repr, batch))}; take the binary version instead")
    return batch[key.encode()]


_REBUILD = np.empty(0).__reduce__()[0]  # numpy's own function, under the name it has in this version
_ALLOWED: dict[str, Any] = {"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype, "numpy.core.multiarray._reconstruct": _REBUILD,
                            "numpy._core.multiarray._reconstruct": _REBUILD}


class _Plain(pickle.Unpickler):
    """Builds numbers, texts, lists, dictionaries and arrays, and refuses to look up anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ALLOWED[f"{module}.{name}"]


def _plain(content: bytes, name: str) -> dict[bytes, Any]:
    try:
        batch = _Plain(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        raise DataError(f"{name} must be a batch of numbers and arrays only, but {error}; take the binary version instead") from None
    if not isinstance(batch, dict):
        raise DataError(f"{name} must hold a dictionary, not {type(batch).__name__}; take the binary version instead")
    return batch
