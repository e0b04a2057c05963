"""What a large table costs: a look at it, agreeing on its encoder over many sites, and predicting all its rows; seconds, and bytes a row.

The plain loop is what a user would write who trusts the table: pandas' own reader and scikit-learn's encoders on pooled rows.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rookery import Bundle, Data, Federation
from rookery.bundle.predicting import predict_file
from rookery.data.tables import Encoder, look, read_sheet
from rookery.models import mlp
from rookery.studies.agreement import agree, raw_fields, raw_problem

ROWS, SITES = 900_000, 200
NUMBERS, CATEGORIES = 8, 6


def write(path: Path, rows: int) -> None:
    """Loans, say: numbers, categories of up to fifty values, a site, an outcome."""
    r = np.random.default_rng(0)
    frame = pd.DataFrame({f"number {i}": r.lognormal(3, 1, rows).round(2) for i in range(NUMBERS)})
    for i in range(CATEGORIES):
        frame[f"category {i}"] = np.asarray([f"value {v}" for v in range(10 * i + 2)])[r.integers(0, 10 * i + 2, rows)]
    frame["site"] = np.asarray([f"bank {v}" for v in range(SITES)])[r.integers(0, SITES, rows)]
    frame["outcome"] = np.where(r.random(rows) < 0.18, "default", "paid")
    frame.to_csv(path, index=False)


def main(rows: int = ROWS) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loans.csv"
        write(path, rows)
        begun = time.perf_counter()
        frame = pd.read_csv(path)
        numbers, categories = ([c for c in frame if c.startswith(kind)] for kind in ("number", "category"))
        make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), categories)).fit_transform(frame)
        plain = time.perf_counter() - begun
        del frame
        begun = time.perf_counter()
        sheet = read_sheet(path)
        read = time.perf_counter() - begun
        found = look(sheet, "outcome", site="site")
        looked = time.perf_counter() - begun
        begun = time.perf_counter()
        data = Data.by_site(raw_fields(sheet, found.schema), np.asarray(sheet.texts("site")).tolist())
        encoder = agree(Federation(raw_problem(), data, engine="loop"), found.schema)
        agreed = time.perf_counter() - begun
        del data
        assert encoder.names == Encoder.fit(sheet, found.schema, least=10).names
        width = len(encoder.names)
        bundle = Bundle(mlp(width, 32, 2), {"name": "mlp", "hidden": [32]}, (width,), found.schema.classes, threshold=0.5,
                        schema=found.schema, encoder=encoder)
        begun = time.perf_counter()
        predict_file(bundle, str(path), Path(folder) / "out.csv")
        predicted = time.perf_counter() - begun
    print(f"a table of {rows:,} rows, {NUMBERS} numbers, {CATEGORIES} categories, {SITES} sites: read in {read:.1f} s, looked at in "
          f"{looked:.1f} s, encoder agreed on in {agreed:.1f} s, all rows predicted and written in {predicted:.1f} s; pandas and "
          f"scikit-learn on pooled rows, reading and encoding only: {plain:.1f} s; memory at most "
          f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
