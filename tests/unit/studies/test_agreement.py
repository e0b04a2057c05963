"""Sites agree on an encoder from sums and names: it is scikit-learn's on the pooled rows, and no row leaves a site for it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rookery import Data, Federation
from rookery.data.tables import ColumnSchema, Encoder, Schema, from_frame
from rookery.data.tables.encoder import Category, Number
from rookery.errors import ConfigError, DataError, ProblemError
from rookery.studies.agreement import Agreement, agree, raw_fields, raw_problem

KINDS = {"age": "number", "cost": "number", "day": "date", "ward": "category", "sex": "category"}


def table(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Numbers of very different size with gaps, dates, and categories of which one is rare."""
    r = np.random.default_rng(seed)
    age = np.where(r.random(rows) < 0.1, np.nan, r.normal(60, 15, rows))
    ward = r.choice(["A", "B", "Straße 7", ""], rows, p=[0.5, 0.3, 0.15, 0.05])
    ward[:3] = "rare"
    return pd.DataFrame({"age": age, "cost": 1e9 + r.normal(0, 3, rows), "sex": r.choice(["f", "m"], rows), "ward": ward,
                         "day": [f"{d:02d}.03.2021" for d in r.integers(1, 29, rows)], "y": r.integers(0, 2, rows)})


def schema(**changes: ColumnSchema) -> Schema:
    columns = {name: ColumnSchema(kind, "%d.%m.%Y" if kind == "date" else "") for name, kind in KINDS.items()}
    return Schema("y", ("0", "1"), {**columns, **changes})


def agreed(frame: pd.DataFrame, site: np.ndarray[Any, Any], own: Schema, **options: Any) -> tuple[Encoder, Federation[Any]]:
    least = options.pop("least", 10)
    data = Data.by_site(raw_fields(from_frame(frame), own), site.tolist())
    fed = Federation(raw_problem(), data, **options)
    return agree(fed, own, least), fed


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_numbers_and_categories_are_encoded_as_scikit_learn_does_on_pooled_rows(engine: str) -> None:
    frame, own = table(), schema()
    site = np.random.default_rng(1).choice(["north", "south", "west"], len(frame), p=[0.6, 0.3, 0.1])
    encoder, fed = agreed(frame, site, own, engine=engine)
    found = dict(zip(encoder.names, encoder(from_frame(frame), own).T.astype(np.float64), strict=True))
    days = (pd.to_datetime(frame["day"], format="%d.%m.%Y") - pd.Timestamp(0)).dt.days.to_numpy(dtype=np.float64)
    for name, values in (("age", frame["age"].to_numpy()), ("cost", frame["cost"].to_numpy()), ("day", days)):
        scaler = StandardScaler().fit(values[:, None])
        column = next(c for c in encoder.columns if c.name == name)
        assert isinstance(column, Number)
        np.testing.assert_allclose([column.mean, column.scale], [scaler.mean_[0], scaler.scale_[0]], rtol=1e-9)
        np.testing.assert_allclose(found[name], np.nan_to_num(scaler.transform(values[:, None])[:, 0]), rtol=1e-6, atol=1e-6)
    assert found["age missing"].tolist() == np.isnan(frame["age"]).astype(float).tolist()
    assert "cost missing" not in found
    coder = OneHotEncoder(categories=[["A", "B", "Straße 7"]], handle_unknown="ignore", sparse_output=False)
    one_hot = coder.fit_transform(frame[["ward"]])
    np.testing.assert_array_equal(np.stack([found[f"ward={w}"] for w in ("A", "B", "Straße 7")], 1), one_hot)
    assert found["ward other"].tolist() == (frame["ward"] == "rare").astype(float).tolist()
    assert found["ward missing"].tolist() == (frame["ward"] == "").astype(float).tolist()
    assert not {"sex other", "sex missing"} & {*found}  # no training row has any
    account = fed.ledger["setup"]
    assert (account.exchanges, fed.ledger["train"].exchanges) == (5, 0)
    numbers, texts, width = 3, 2, len("Straße 7".encode())
    sent = 8 * (2 * numbers + texts) + 8 * numbers + 8 * 2 * texts + (3 + 2) * width + 8 * texts
    assert account.bytes_up == 3 * sent


def test_what_sites_agree_on_is_what_one_place_would_find() -> None:
    frame, own = table(200, 3), schema()
    site = np.asarray([f"s{i % 7}" for i in range(200)])
    together = Encoder.fit(from_frame(frame), own, least=1)
    encoder, _ = agreed(frame, site, own, least=1)
    assert [c.name for c in encoder.columns] == [c.name for c in together.columns]
    for a, b in zip(encoder.columns, together.columns, strict=True):
        if isinstance(a, Number) and isinstance(b, Number):
            np.testing.assert_allclose([a.mean, a.scale], [b.mean, b.scale], rtol=1e-12)
            assert (a.missing, a.kind) == (b.missing, b.kind)
        else:
            assert a == b
    again, _ = agreed(frame.iloc[::-1], site[::-1], own, least=1)
    assert again.names == encoder.names


def test_a_name_leaves_a_site_only_with_ten_rows_behind_it() -> None:
    # 9 rows of "x" at each of three sites, 10 of "z" at one of them
    values = ["x"] * 27 + ["y"] * 60 + ["z"] * 10
    site = np.asarray(["a", "b", "c"] * 9 + ["a", "b", "c"] * 20 + ["b"] * 10)
    frame = pd.DataFrame({"age": np.arange(97.0), "ward": values, "y": 0})
    own = Schema("y", ("0", "1"), {"age": ColumnSchema("number"), "ward": ColumnSchema("category")})
    encoder, _ = agreed(frame, site, own)
    assert encoder.columns[1] == Category("ward", ("y", "z"), other=True, missing=False)
    assert agreed(frame, site, own, least=9)[0].columns[1] == Category("ward", ("x", "y", "z"), other=False, missing=False)


def test_under_a_secure_sum_categories_are_declared() -> None:
    frame, site = table(), np.asarray(["a", "b"] * 150)
    with pytest.raises(ConfigError, match=r"only sums may leave the sites, .* declare the values of 'ward' .* categories ="):
        agreed(frame, site, schema(), only_sums=True)
    declared = schema(ward=ColumnSchema("category", categories=("B", "A")), sex=ColumnSchema("category", categories=("m", "f")))
    encoder, fed = agreed(frame, site, declared, only_sums=True)
    assert encoder.names[-6:] == ("ward=B", "ward=A", "ward other", "ward missing", "sex=m", "sex=f")
    assert fed.ledger["setup"].exchanges == 3


def test_columns_that_cannot_be_agreed_on_are_refused_by_name() -> None:
    frame, site = table(), np.asarray(["a", "b"] * 150)
    frame["age"] = np.nan
    with pytest.raises(DataError, match="column 'age' must have a value in some training row, but all are missing"):
        agreed(frame, site, schema())
    with pytest.raises(ConfigError, match=r"fewer than min_batch = 151 rows, .*: 'a' has most, 150; lower min_batch"):
        agreed(table(), site, schema(), min_batch=151)
    frame = table().assign(ward=["w" * 300] * 300)
    with pytest.raises(DataError, match="name may have 200 bytes, but column 'ward' of the table has one of 300"):
        agreed(frame, site, schema())


def test_numbers_of_fewer_rows_than_min_batch_do_not_leave() -> None:
    """Also where a schema calls nearly all cells missing."""
    frame, site = table(), np.asarray(["a", "b"] * 150)
    values = [str(value) for value in frame["cost"]]
    few = schema(cost=ColumnSchema("number", missing=tuple(values[4:])))  # two are left at each site
    fed = Federation(raw_problem(), Data.by_site(raw_fields(from_frame(frame.astype({"cost": str})), few), site.tolist()), min_batch=5)
    count, total, _ = fed.sum(*fed.map(Agreement().totals, fed.broadcast(torch.zeros(1))))
    square = fed.sum(fed.map(Agreement().squares, fed.broadcast(torch.zeros(3, dtype=torch.float64))))
    for found in (count, total, square):
        assert [bool(number) for number in found] == [True, False, True]
    with pytest.raises(DataError, match="column 'cost' must have a value in some training row"):
        agree(fed, few)


def test_a_name_that_somebody_guesses_is_not_counted() -> None:
    """Neither among names that were not agreed on, nor by declaring it a missing value: under `min_batch` few cells tell nothing."""
    frame = table().assign(ward="A")
    frame.loc[:3, "ward"] = "rare"  # 2 at each site
    frame.loc[4:13, "ward"] = "B"  # 5
    own = schema(ward=ColumnSchema("category", missing=("rare",)), sex=ColumnSchema("category", missing=("f",)))
    for known, least, others, gone in (("A", 5, 1.0, 0.0), ("A", 6, 0.0, 0.0), ("A", 2, 1.0, 1.0)):
        data = Data.by_site(raw_fields(from_frame(frame), own), ["a", "b"] * 150)
        fed = Federation(raw_problem(), data, min_batch=least)
        agreed_names = torch.tensor([list(known.encode()), list(b"m")], dtype=torch.uint8)
        told = fed.collect(fed.map(Agreement().others, *fed.broadcast(agreed_names, torch.tensor([0, 1]))))
        missing = fed.collect(*fed.map(Agreement().totals, fed.broadcast(torch.zeros(1))))[2]
        assert told[:, 0].tolist() == [others] * 2
        assert missing[:, 0].tolist() == [gone] * 2
        assert told[:, 1].tolist() == [0.0] * 2
        assert missing[:, 1].tolist() == [1.0] * 2


@pytest.mark.parametrize("shape", [(), (1,), (150, 1), (150, 3)])
def test_there_is_one_mean_for_each_column(shape: tuple[int, ...]) -> None:
    fed = Federation(raw_problem(), Data.by_site(raw_fields(from_frame(table()), schema()), ["a", "b"] * 150))
    with pytest.raises(ProblemError, match="there is a mean for each of 3 columns; got the shape"):
        fed.sum(fed.map(Agreement().squares, fed.broadcast(torch.zeros(shape, dtype=torch.float64))))


def test_an_encoder_is_plain_json_and_comes_back() -> None:
    frame, own = table(), schema()
    encoder = Encoder.fit(from_frame(frame), own)
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json(own))))
    assert again == encoder
    assert torch.equal(torch.from_numpy(again(from_frame(frame), own)), torch.from_numpy(encoder(from_frame(frame), own)))
    with pytest.raises(DataError, match="an encoder's JSON has columns"):
        Encoder.from_json({"columns": [{"kind": "number"}]})
