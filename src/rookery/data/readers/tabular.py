"""Small imbalanced tables of the literature, put by hand into `tabular` in the data folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..tables.rows import Rows
from ..tables.schema import ColumnSchema
from ..tables.sheet import Dialect
from .base import Table
from .table import encoded, read_table


def _numbers(path: str, test_share: float, seed: int, *, drop: Sequence[str] = (), test: str | None = None, delimiter: str = ",",
             comment: str | None = None) -> Rows:
    """A table of numbers without a header line, whose last column is the label."""
    rows = read_table(path, -1, test=test, test_share=test_share, seed=seed, drop=drop, dialect=Dialect(delimiter, None, False, comment))
    kinds = {name: ColumnSchema("drop" if name in drop else "number") for name in rows.schema.columns}
    return replace(rows, schema=replace(rows.schema, columns=kinds), notes=())


def mammography_rows(test_share: float = 0.25, seed: int = 0) -> Rows:
    """The rows of mammography before they are encoded."""
    return _numbers("tabular/mammography.csv", test_share, seed)


def oil_spill_rows(test_share: float = 0.25, seed: int = 0) -> Rows:
    """The rows of oil spills before they are encoded."""
    return _numbers("tabular/oil-spill.csv", test_share, seed, drop=["0"])


def phoneme_rows(test_share: float = 0.25, seed: int = 0) -> Rows:
    """The rows of phoneme before they are encoded."""
    return _numbers("tabular/phoneme.csv", test_share, seed)


def page_blocks_rows(test_share: float = 0.25, seed: int = 0) -> Rows:
    """The rows of page blocks before they are encoded."""
    return _numbers("tabular/page-blocks0.dat", test_share, seed, comment="@")


def satlog_rows() -> Rows:
    """The rows of satlog before they are encoded."""
    return _numbers("tabular/sat.trn", 0.25, 0, test="tabular/sat.tst", delimiter=" ")


def mammography(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Microcalcifications (Woods et al., 1993), 11 183 rows, 6 numbers, 2.3 % positive."""
    return encoded(mammography_rows(test_share, seed))


def oil_spill(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Oil slicks on radar images (Kubat, Holte, Matwin, 1998), 937 rows, 48 numbers, 4.4 % positive; the patch number is left out."""
    return encoded(oil_spill_rows(test_share, seed))


def phoneme(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Nasal or oral vowels (ELENA project), 5 404 rows, 5 numbers, 29 % positive."""
    return encoded(phoneme_rows(test_share, seed))


def page_blocks(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Text or not among blocks of a page (Malerba; KEEL's page-blocks0), 5 472 rows, 10 numbers, 10.2 % positive."""
    return encoded(page_blocks_rows(test_share, seed))


def satlog() -> tuple[Table, Table]:
    """Ground seen by Landsat (Statlog), 4 435 + 2 000 rows, 36 numbers, six classes, of which class 4 is rare."""
    return encoded(satlog_rows())
