"""Sets of the LIBSVM collection (Chang, Lin): sparse text with labels first, perhaps compressed."""

from __future__ import annotations

import numpy as np
import torch

from ...errors import DataError
from ..folder import folder, present
from ..split import split
from .base import Table, codes

URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
FEATURES = {"a9a": 123, "w8a": 300, "ijcnn1": 22}


def libsvm(name: str, *, test_share: float | None = None, seed: int = 0) -> tuple[Table, Table]:
    """The files `libsvm/NAME` and `libsvm/NAME.t` of the data folder, plain, .gz or .bz2, as dense rows.

    These are put there by hand: their publisher gives no checksums. Where there is no test file, `test_share` splits test rows off.
    """
    from sklearn.datasets import load_svmlight_files

    names = [name] if test_share is not None else [name, f"{name}.t"]
    paths = [present(*(f"libsvm/{file}{ending}" for ending in ("", ".gz", ".bz2"))) for file in names]
    for file, path in zip(names, paths, strict=True):
        if path is None:
            other = ", or write test_share=0.2 to split test rows off" if file.endswith(".t") else ""
            raise DataError(f"{file!r} is not in the data folder; download it from {URL} and put it (or its .gz or .bz2) into "
                            f"{folder() / 'libsvm'}, or set ROOKERY_DATA to a folder that has it{other}")
    try:
        read = load_svmlight_files([str(path) for path in paths], n_features=FEATURES.get(name), dtype=np.float32, zero_based=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"the files of {name!r} in {folder() / 'libsvm'} must be LIBSVM text with columns counted from 1, "
                        f"but {error}; download them again from {URL}") from None
    for labels in read[1::2]:
        if (labels != np.floor(labels)).any():
            raise DataError(f"labels of {name!r} must be whole numbers, the classes, but one is {labels[labels != np.floor(labels)][0]}")
    classes, found = codes(*([str(int(label)) for label in labels] for labels in read[1::2]))
    whole = [Table({"inputs": torch.from_numpy(rows.toarray()), "labels": torch.from_numpy(labels)}, classes, name)
             for rows, labels in zip(read[::2], found, strict=True)]
    if test_share is None:
        return whole[0], whole[1]
    parts = split(found[0], test_share, seed=seed)
    return whole[0].take(parts.train), whole[0].take(parts.test)
