"""The publishers' own files, where they are at hand, hold what the publishers say."""

from __future__ import annotations

import csv
import os
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rookery.data import Table, load, read_csv
from rookery.errors import DataError

REAL = os.environ.get("ROOKERY_TEST_DATA")
MNIST = ([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009])
PUBLISHED: dict[str, tuple[tuple[int, ...], list[int], list[int]]] = {
    "mnist": ((1, 28, 28), *MNIST),
    "fashion-mnist": ((1, 28, 28), [6000] * 10, [1000] * 10),
    "cifar10": ((3, 32, 32), [5000] * 10, [1000] * 10),
    "cifar100": ((3, 32, 32), [500] * 100, [100] * 100),
    "stl10": ((3, 96, 96), [500] * 10, [800] * 10),
    "adult": ((108,), [24720, 7841], [12435, 3846]),
    "omniglot": ((1, 28, 28), [20] * 964 + [0] * 659, [0] * 964 + [20] * 659),
    "a9a": ((123,), [24720, 7841], [12435, 3846]),
    "pneumoniamnist": ((1, 28, 28), [1214, 3494], [234, 390]),
    "satlog": ((36,), [1072, 479, 961, 415, 470, 1038], [461, 224, 397, 211, 237, 470]),
}


SPLIT_HERE: dict[str, tuple[int, list[int]]] = {  # published as one file: inputs, and rows of each class in both parts together
    "mammography": (6, [10923, 260]), "oil-spill": (48, [896, 41]), "phoneme": (5, [3818, 1586]), "page-blocks": (10, [4913, 559]),
    "w8a": (300, [48270, 1479])}
SITES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "heart": ("num", "hospital", {}), "lending": ("Class", "addr_state", {}), "dialysis": ("event", "center", {}),
    "covid": ("result", "clinic_name", {"group": "subject_id", "drop": ["fake_first_name", "fake_last_name"]})}

published = pytest.mark.skipif(REAL is None, reason="ROOKERY_TEST_DATA names no folder with the published files")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: (_ for _ in ()).throw(urllib.error.URLError("no network")))


def at_hand(name: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Table, Table]:
    monkeypatch.setenv("ROOKERY_DATA", str(REAL))
    try:
        return load(name, **options)
    except DataError as error:
        if "data folder" not in str(error):  # the sentence of a missing file
            raise
        pytest.skip(f"{name} is not in {REAL}")


@published
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("omniglot", "cifar10"))) for name in PUBLISHED])
def test_published_files_have_the_published_shapes_and_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = at_hand(name, monkeypatch)
    shape, *counts = PUBLISHED[name]
    for table, count in zip(tables, counts, strict=True):
        assert table.fields["inputs"].shape == (sum(count), *shape)
        assert torch.bincount(table.fields["labels"], minlength=len(table.classes)).tolist() == count
        if len(shape) == 3:
            assert 0 <= float(table.fields["inputs"].min()) < float(table.fields["inputs"].max()) <= 1


@published
@pytest.mark.parametrize("name", SPLIT_HERE)
def test_published_files_without_test_rows_are_split_by_class(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = at_hand(name, monkeypatch, test_share=0.25)
    inputs, counts = SPLIT_HERE[name]
    found = [torch.bincount(table.fields["labels"]) for table in tables]
    assert (found[0] + found[1]).tolist() == counts
    np.testing.assert_allclose(found[1], [count / 4 for count in counts], atol=1)
    assert all(table.fields["inputs"].shape == (len(table), inputs) for table in tables)


@published
@pytest.mark.parametrize("name", SITES)
def test_tables_of_many_sites_keep_every_row_at_its_site(name: str) -> None:
    """Counted again by the standard library's reader."""
    path = Path(str(REAL)) / "sites" / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"sites/{name}.csv is not in {REAL}")
    label, site, options = SITES[name]
    tables = read_csv(path, label, site=site, **options)
    with path.open(newline="") as stream:
        expected = Counter((row[site].strip(), row[label].strip()) for row in csv.DictReader(stream))
    found = Counter(pair for t in tables for pair in zip(t.values("site").tolist(), t.values("labels").tolist(), strict=True))
    assert found == expected
    if "group" in options:
        assert not set(tables[0].values("group").tolist()) & set(tables[1].values("group").tolist())


@published
@pytest.mark.slow
def test_cifar10_has_the_published_moments_and_first_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = at_hand("cifar10", monkeypatch)
    assert train.fields["labels"][:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert test.fields["labels"][:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    inputs = train.fields["inputs"]
    np.testing.assert_allclose(inputs.mean((0, 2, 3)), [0.4914, 0.482158, 0.446531], atol=5e-6)
    np.testing.assert_allclose(inputs.std((0, 2, 3)), [0.247032, 0.243485, 0.261588], atol=5e-6)
