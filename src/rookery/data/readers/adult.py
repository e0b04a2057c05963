"""Adult, also called Census Income (Becker, Kohavi, UCI 1996)."""

from __future__ import annotations

from ..folder import fetch
from .base import Table
from .table import read_sheet, tables

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
FILES = {"adult.data": "5d7c39d7b8804f071cdd1f2a7c460872", "adult.test": "35238206dfdf7f1fe215bbb874adecdc"}
COLUMNS = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
           "capital-gain", "capital-loss", "hours-per-week", "native-country", "income")


def adult() -> tuple[Table, Table]:
    """Does a person earn more than 50 000 dollars a year? 32 561 + 16 281 rows.

    Six numbers, standardised, and eight one-hot columns with `?` as a category. The protected columns `sex` and `race` are fields as
    well as inputs.
    """
    # the test file begins with a line about cross validation, after a bar, and its labels end with a full stop
    train, test = (read_sheet(fetch(f"adult/{name}", URL + name, checksum), COLUMNS, comment="|") for name, checksum in FILES.items())
    test.columns["income"] = [value.removesuffix(".") for value in test.columns["income"]]
    return tables("adult", train, test, "income", keep=("sex", "race"))
