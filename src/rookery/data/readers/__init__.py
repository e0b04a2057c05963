"""Readers of data sets, one file each: training and test rows from the publishers' own formats."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import DataError
from ..tables.rows import Rows
from .adult import adult, adult_rows
from .base import Table
from .cifar import cifar10, cifar100
from .embedded import breast_cancer, digits, iris, wine
from .images import read_images
from .libsvm import libsvm
from .medmnist import FILES as MEDMNIST
from .medmnist import medmnist, medmnist_parts
from .mnist import fashion_mnist, mnist
from .npz import read_npz
from .omniglot import omniglot, omniglot_splits
from .sites import SITE_ROWS
from .stl10 import stl10
from .table import encoded, read_csv
from .tabular import (
    mammography,
    mammography_rows,
    oil_spill,
    oil_spill_rows,
    page_blocks,
    page_blocks_rows,
    phoneme,
    phoneme_rows,
    satlog,
    satlog_rows,
)


def _encoded(name: str, **options: Any) -> tuple[Table, Table]:
    return encoded(SITE_ROWS[name](**options))


DATASETS: dict[str, Callable[..., tuple[Table, Table]]] = {
    "adult": adult, "breast-cancer": breast_cancer, "cifar10": cifar10, "cifar100": cifar100, "digits": digits,
    "fashion-mnist": fashion_mnist, "iris": iris, "mammography": mammography, "mnist": mnist, "oil-spill": oil_spill,
    "omniglot": omniglot, "page-blocks": page_blocks, "phoneme": phoneme, "satlog": satlog, "stl10": stl10, "wine": wine,
    **{name: partial(libsvm, name) for name in ("a9a", "ijcnn1", "w8a")},
    **{name: partial(medmnist, name) for name in MEDMNIST},
    **{name: partial(_encoded, name) for name in SITE_ROWS},
}
"""The readers of `load`, by the names of their data sets."""

ROWS: dict[str, Callable[..., Rows]] = {
    "adult": adult_rows, "mammography": mammography_rows, "oil-spill": oil_spill_rows, "page-blocks": page_blocks_rows,
    "phoneme": phoneme_rows, "satlog": satlog_rows, **SITE_ROWS,
}
"""Those of them that are tables of columns: their rows before they are encoded, for sites that agree on an encoder."""


def load(name: str, **options: Any) -> tuple[Table, Table]:
    """Training and test rows of a data set by its name in `DATASETS`; options go to its reader.

    >>> train, test = load("iris", test_share=0.2)
    >>> len(train), len(test), train.classes
    (120, 30, ('setosa', 'versicolor', 'virginica'))
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), DATASETS, 1, cutoff=0.5)
        raise DataError(f"there is no data set {name!r}; {f'did you mean {near[0]!r}?' if near else f'there are {sorted(DATASETS)}'}")
    return DATASETS[name](**options)


__all__ = [
    "DATASETS", "Table", "adult", "breast_cancer", "cifar10", "cifar100", "digits", "fashion_mnist", "iris", "libsvm", "load",
    "mammography", "medmnist", "medmnist_parts", "mnist", "oil_spill", "omniglot", "omniglot_splits", "page_blocks", "phoneme",
    "read_csv", "read_images", "read_npz", "satlog", "stl10", "wine",
]
