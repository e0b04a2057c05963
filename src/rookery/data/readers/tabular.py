"""Small imbalanced tables of the literature, put by hand into `tabular` in the data folder."""

from __future__ import annotations

from .base import Table
from .table import read_csv


def mammography(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Microcalcifications (Woods et al., 1993), 11 183 rows, 6 numbers, 2.3 % positive."""
    return read_csv("tabular/mammography.csv", -1, header=False, test_share=test_share, seed=seed)


def oil_spill(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Oil slicks on radar images (Kubat, Holte, Matwin, 1998), 937 rows, 48 numbers, 4.4 % positive; the patch number is left out."""
    return read_csv("tabular/oil-spill.csv", -1, header=False, drop=["0"], test_share=test_share, seed=seed)


def phoneme(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Nasal or oral vowels (ELENA project), 5 404 rows, 5 numbers, 29 % positive."""
    return read_csv("tabular/phoneme.csv", -1, header=False, test_share=test_share, seed=seed)


def page_blocks(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Text or not among blocks of a page (Malerba; KEEL's page-blocks0), 5 472 rows, 10 numbers, 10.2 % positive."""
    return read_csv("tabular/page-blocks0.dat", -1, header=False, comment="@", test_share=test_share, seed=seed)


def satlog() -> tuple[Table, Table]:
    """Ground seen by Landsat (Statlog), 4 435 + 2 000 rows, 36 numbers, six classes, of which class 4 is rare."""
    return read_csv("tabular/sat.trn", -1, test="tabular/sat.tst", header=False, delimiter=" ")
