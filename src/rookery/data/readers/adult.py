"""Adult, also called Census Income (Becker, Kohavi, UCI 1996)."""

from __future__ import annotations

from dataclasses import replace

from ..folder import fetch
from ..tables.look import look
from ..tables.rows import Rows, make_rows
from .base import Table
from .table import encoded, read_publishers

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
FILES = {"adult.data": "5d7c39d7b8804f071cdd1f2a7c460872", "adult.test": "35238206dfdf7f1fe215bbb874adecdc"}
COLUMNS = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
           "capital-gain", "capital-loss", "hours-per-week", "native-country", "income")
NUMBERS = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}


def adult_rows() -> Rows:
    """The rows of Adult before they are encoded."""
    # the test file begins with a line about cross validation, after a bar, and its labels end with a full stop
    train, test = (read_publishers(fetch(f"adult/{name}", URL + name, checksum), COLUMNS, comment="|") for name, checksum in FILES.items())
    test = test.with_column("income", test.texts("income").str.removesuffix("."))
    schema = look(train, "income", keep=("sex", "race")).schema
    kinds = {name: replace(column, kind="number" if name in NUMBERS else "category") for name, column in schema.columns.items()}
    return make_rows(train, replace(schema, columns=kinds), name="adult", test=test)


def adult() -> tuple[Table, Table]:
    """Does a person earn more than 50 000 dollars a year? 32 561 + 16 281 rows.

    Six numbers, standardised, and eight one-hot columns with a missing value as one of them. The protected columns `sex` and `race` are
    fields as well as inputs.
    """
    return encoded(adult_rows())
