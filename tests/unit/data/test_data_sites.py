"""Public tables with sites of their own, by name: what the publishers' files hold, and a sentence where they are not at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rookery.data import load
from rookery.data.readers.facts import FACTS
from rookery.data.readers.sites import SITE_ROWS, TABLES
from rookery.errors import DataError

REAL = os.environ.get("ROOKERY_TEST_DATA")
# rows that count, positives, sites, inputs of the schema
PUBLISHED = {"stroke": (19433, 1781, 466, 22), "covid": (15223, 865, 88, 8), "lending": (9857, 517, 50, 21), "heart": (920, 509, 4, 13),
             "precincts": (43699, 5237, 5, 8), "dialysis": (4993, 951, 67, 3), "bank-marketing": (45211, 5289, 12, 14)}
LARGE = {"sba": (895661, 157488, 5801, 12), "flights": (336776, 8255, 16, 12), "cps": (280005, 15540, 51, 10),
         "kdd-census": (299285, 18568, 24, 39), "brfss": (287959, 24670, 13, 16)}


@pytest.mark.skipif(REAL is None, reason="ROOKERY_TEST_DATA names no folder with the published files")
@pytest.mark.parametrize("name", [*PUBLISHED, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_the_published_rows_are_all_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_DATA", str(REAL))
    rows, positives, sites, inputs = {**PUBLISHED, **LARGE}[name]
    found = SITE_ROWS[f"sites/{name}"]()
    fields, names = found.codes()
    assert (len(found.sheet), int(fields["labels"].sum()), len(names["site"]), len(found.schema.inputs)) == (rows, positives, sites, inputs)
    assert len(found.train) + len(found.test) == rows
    if "group" in fields:
        assert not {*fields["group"][found.train].tolist()} & {*fields["group"][found.test].tolist()}
    leaks = {"ID14", "DIED", "EXPD14", "MIS_Status", "Term", "dep_delay", "ct_result", "duration", "vehicleSearch", "time", "num", "event"}
    assert not leaks & {*found.schema.inputs}


def test_what_is_said_of_a_table_before_it_is_read_is_what_its_publisher_has() -> None:
    for name, (rows, _, sites, _) in {**PUBLISHED, **LARGE}.items():
        facts = FACTS[f"sites/{name}"]
        assert (int(facts.rows.replace(" ", "")), facts.sites) == (rows, sites), name


def test_a_table_that_is_not_there_names_its_publisher_and_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_DATA", str(tmp_path))
    for name, spec in TABLES.items():
        with pytest.raises(DataError) as caught:
            load(f"sites/{name}")
        assert spec.publisher in str(caught.value)
        assert f"licence {spec.licence}" in str(caught.value)
    with pytest.raises(DataError, match=r"there is no data set 'sites/strok'; did you mean 'sites/stroke'\?"):
        load("sites/strok")


def test_conditions_slices_joins_and_groups_make_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_DATA", str(tmp_path))
    (tmp_path / "sites").mkdir()
    flights = ["month,day,hour,distance,dep_time,carrier,origin,dest,time_hour,tailnum"]
    flights += [f"{1 + i % 12},{1 + i % 28},{i % 24},{100 + i},{'' if i % 10 == 0 else 517},{'UA' if i % 2 else 'AA'},JFK,"
                f"{'BOS' if i % 3 else 'MIA'},h{i % 5},N{i}" for i in range(200)]
    (tmp_path / "sites" / "flights.csv").write_text("\n".join(flights))
    weather = ["origin,time_hour,temp,dewp,humid,wind_speed,precip,pressure,visib", *(f"JFK,h{i},{i},1,2,3,0,1000,10" for i in range(4))]
    (tmp_path / "sites" / "flights-weather.csv").write_text("\n".join(weather))
    rows = SITE_ROWS["sites/flights"]()
    fields, names = rows.codes()
    assert int(fields["labels"].sum()) == 20
    assert names["site"] == ("AA", "UA")
    assert names["group"][0] == "1-1"
    assert rows.sheet.texts("temp").tolist()[:6] == ["0", "1", "2", "3", "", "0"]  # the fifth hour has no weather
    assert {"dep_time", "tailnum", "time_hour"}.isdisjoint(rows.schema.inputs)
