"""Tables that were once read in ways that were silently wrong: what they must come to, from the file to the trained model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import command

from rookery.data.tables import look, read_sheet
from rookery.errors import ConfigError, DataError
from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.job import Job

RUN = {"model": {"name": "linear"}, "algorithm": {"name": "FedAvg", "lr": 0.5, "local_steps": 5, "batch": 32},
       "run": {"rounds": 10, "every": 10}}


def patients(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """Three hospitals, visits of patients of whom some are at two of them, and an outcome that age explains."""
    r = np.random.default_rng(seed)
    age = r.normal(60, 15, rows).round(1)
    died = r.random(rows) < 1 / (1 + np.exp(-(age - 75) / 4))
    patient, hospital = [f"P{n:04d}" for n in r.integers(0, 250, rows)], r.choice(["north", "south", "west"], rows)
    sex, days = r.choice(["f", "m"], rows), zip(r.integers(1, 13, rows), r.integers(1, 29, rows), strict=True)
    return pd.DataFrame({"row": np.arange(1, rows + 1), "patient": patient, "hospital": hospital, "age": age.astype(str), "sex": sex,
                         "admitted": [f"2021-{m:02d}-{d:02d}" for m, d in days], "outcome": np.where(died, "died", "survived")})


def job(frame: pd.DataFrame, folder: Path, sites: dict[str, Any] | None = None, sep: str = ",", **data: Any) -> Job:
    frame.to_csv(folder / "t.csv", index=False, sep=sep)
    options = {"table": str(folder / "t.csv"), "label": "outcome", **data}
    return build(parse({"data": {k: v for k, v in options.items() if v is not None}, **({} if sites is None else {"sites": sites}), **RUN}))


def ap(made: Job) -> float:
    return float(made.run(None, "x").history[-1]["test AP"])


def test_one_cell_that_is_no_number_leaves_the_column_a_number(tmp_path: Path) -> None:
    frame = patients()
    clean = job(frame, tmp_path, site="hospital")
    frame.loc[17, "age"] = "unknown"
    odd = job(frame, tmp_path, site="hospital")
    assert [n for n in odd.test.names["inputs"] if n.startswith("age")] == ["age", "age missing"]
    assert any("'unknown' in line 19; taken for missing" in note for note in odd.notes)
    assert ap(odd) > 0.5
    assert ap(odd) == pytest.approx(ap(clean), abs=0.02)


def test_decimal_commas_are_decimals(tmp_path: Path) -> None:
    frame = patients()
    clean = job(frame, tmp_path, site="hospital")
    commas = job(frame.assign(age=frame["age"].str.replace(".", ",")), tmp_path, site="hospital", sep=";")
    assert commas.test.names["inputs"] == clean.test.names["inputs"]
    np.testing.assert_array_equal(commas.test.fields["inputs"], clean.test.fields["inputs"])


def test_ids_are_no_inputs_and_dates_are_days(tmp_path: Path) -> None:
    made = job(patients(), tmp_path, site="hospital")
    assert made.test.names["inputs"] == ("age", "admitted", "sex=f", "sex=m")
    assert any("look like ids and are left out: 'row', 'patient'" in note for note in made.notes)
    assert any("name it as the group (--group patient)" in note for note in made.notes)


def test_the_site_column_is_the_federation(tmp_path: Path) -> None:
    frame = patients()
    made = job(frame, tmp_path, site="hospital")
    assert made.fed.data.names == ("north", "south", "west")
    with pytest.raises(ConfigError, match=r"the site column 'hospital' is named in \[data\], .* how = \"dirichlet\" makes others"):
        job(frame, tmp_path, {"how": "dirichlet"}, site="hospital")
    with pytest.raises(ConfigError, match="number = 3 makes others"):
        job(frame, tmp_path, {"number": 3}, site="hospital")
    assert len(job(frame, tmp_path, {"how": "iid", "number": 5}).fed.data.names) == 5


@pytest.mark.parametrize(("names", "positive"), [
    (("survived", "died"), "died"), (("alive", "dead"), "dead"), (("0", "1"), "1"), (("-1", "1"), "1"), (("No", "Yes"), "Yes"),
    (("P I F", "CHGOFF"), "CHGOFF")])
def test_of_two_classes_the_positive_one_is_found_by_its_name(names: tuple[str, str], positive: str, tmp_path: Path) -> None:
    frame = patients()
    made = job(frame.assign(outcome=np.where(frame["outcome"] == "died", names[1], names[0])), tmp_path, site="hospital")
    assert made.test.classes == names
    assert made.test.classes[1] == positive
    assert sum(int(p.fields["labels"].sum()) for p in (made.fed.data, made.held, made.test)) == int((frame["outcome"] == "died").sum())


def test_a_positive_class_that_would_be_a_guess_is_asked_for(tmp_path: Path) -> None:
    frame = patients()
    frame = frame.assign(outcome=np.where(frame["outcome"] == "died", "2", "1"))
    with pytest.raises(ConfigError, match=r"which of the two classes .* '1' and '2', is the positive one\? Write positive = \[\"2\"\]"):
        job(frame, tmp_path)
    assert job(frame, tmp_path, positive=["1"]).test.classes == ("2", "1")


def test_a_patient_is_on_one_side_of_every_split_at_all_sites(tmp_path: Path) -> None:
    frame = patients()
    made = job(frame, tmp_path, site="hospital", group="patient")
    parts = [set(part.fields["group"].tolist()) for part in (made.fed.data, made.held)]
    assert made.test.rows is not None
    tested = set(made.test.values("group"))
    trained = set(frame["patient"]) - tested
    assert len(parts[0] | parts[1]) == len(trained)  # fingerprints of the others
    assert not parts[0] & parts[1]
    assert 0.1 < len(tested) / 250 < 0.4
    assert 0.1 < len(parts[1]) / len(trained) < 0.35
    # a site that has its own rows only puts them on the same sides
    alone = job(frame[frame["hospital"] == "north"], tmp_path, group="patient", sites={"how": "pooled"})
    assert set(alone.test.values("group")) == {p for p in tested if p in set(frame["patient"][frame["hospital"] == "north"])}
    assert set(alone.held.fields["group"].tolist()) <= parts[1]


def test_columns_mean_the_same_at_every_site_whatever_each_of_them_has(tmp_path: Path) -> None:
    frame = patients()
    # wards that only one of the hospitals has, and a file of its own for each of them, with the columns in another order
    frame["ward"] = frame["hospital"].map({"north": "A", "south": "B", "west": "C"})
    frame.loc[frame.index % 2 == 0, "ward"] = "D"
    for i, (name, own) in enumerate(frame.groupby("hospital")):
        columns = [c for c in own.columns if c != "hospital"]
        own[columns[::-1] if i else columns].to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / f"{name}.csv") for name in ("north", "south", "west")]
    made = build(parse({"data": {"table": files, "label": "outcome"}, **RUN}))
    assert made.fed.data.names == ("north", "south", "west")
    assert made.test.names["inputs"] == ("age", "admitted", "sex=f", "sex=m", "ward=A", "ward=B", "ward=C", "ward=D")
    north = made.fed.data.views(0)["inputs"]
    assert float(north[:, 5:7].abs().sum()) == 0  # north has neither B nor C, and their places stay empty
    setup = made.fed.ledger["setup"]
    assert setup.exchanges == 5
    assert setup.bytes_up > 0


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda f: f.assign(age=np.where(f.index % 5 == 0, "high", f["age"])),
     r"column 'age' of t.csv must hold finite numbers, but 120 of its 600 cells are none: 'high' in line 2, .* the share of 0.05"),
    (lambda f: f.assign(outcome="died"), "there must be two classes at least"),
    (lambda f: f.assign(outcome=f["outcome"].where(f.index != 3, "")), "value in the label column 'outcome', but line 5 has no value")])
def test_what_cannot_be_read_is_refused_with_its_line(change: Callable[[pd.DataFrame], pd.DataFrame], sentence: str,
                                                      tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        job(change(patients()), tmp_path, site="hospital")


def test_small_sites_can_be_left_out_and_it_is_said(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[:4, "hospital"] = "tiny"
    made = job(frame, tmp_path, {"least": 10}, site="hospital")
    assert made.fed.data.names == ("north", "south", "west")
    assert any("1 of 4 sites have fewer than least = 10 training rows" in note for note in made.notes)
    with pytest.raises(ConfigError, match=r"sites\.least is 1000, and no site has so many training rows"):
        job(frame, tmp_path, {"least": 1000}, site="hospital")


def test_what_a_person_corrects_in_a_schema_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = patients()
    frame.to_csv("t.csv", index=False)
    assert command(monkeypatch, "look", "t.csv", "--label", "outcome", "--site", "hospital", "--group", "patient") == 0
    text = Path("t.schema.toml").read_text()
    died = int((frame["outcome"] == "died").sum())

    def made(schema: str, **data: Any) -> Job:
        Path("t.schema.toml").write_text(schema)
        return build(parse({"data": {"table": "t.csv", "schema": "t.schema.toml", **data}, **RUN}))

    first = made(text)
    assert first.fed.data.names == ("north", "south", "west")
    assert sum(int(p.fields["labels"].sum()) for p in (first.fed.data, first.held, first.test)) == died
    other = made(text.replace('positive = ["died"]', 'positive = ["survived"]'))
    assert other.test.classes == ("died", "survived")
    assert sum(int(p.fields["labels"].sum()) for p in (other.fed.data, other.held, other.test)) == len(frame) - died
    assert "age" not in made(text, drop=["age"]).test.names["inputs"]
    assert "sex=f" not in made(text.replace('[columns."sex"]\nkind = "category"', '[columns."sex"]\nkind = "drop"')).test.names["inputs"]
    assert made(text, positive=[0]).test.classes == ("survived", "died")  # by place, among the classes by name
    frame.assign(extra=1.5).to_csv("t.csv", index=False)
    assert any("column 'extra' is not in the schema, and is left out" in note for note in made(text).notes)


def test_numbers_of_a_data_frame_mean_what_the_file_meant(tmp_path: Path) -> None:
    frame = patients().drop(columns=["row"])
    frame.loc[5, "age"] = "-999"
    typed = frame.assign(age=pd.to_numeric(frame["age"]).astype(np.float32), sex=frame["sex"].astype("category"),
                         admitted=pd.to_datetime(frame["admitted"]))
    typed.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    schema = look(read_sheet(tmp_path / "t.csv"), "outcome", site="hospital").schema
    (tmp_path / "s.toml").write_text(replace(schema, missing=("", "-999"), delimiter=None, encoding=None, header=None).to_toml())
    jobs = [build(parse({"data": {"table": str(tmp_path / name), "schema": str(tmp_path / "s.toml")}, **RUN}))
            for name in ("t.csv", "t.parquet")]
    assert jobs[0].test.names["inputs"] == jobs[1].test.names["inputs"]
    assert "age missing" in jobs[0].test.names["inputs"]
    np.testing.assert_allclose(jobs[0].test.fields["inputs"], jobs[1].test.fields["inputs"], rtol=1e-6, atol=1e-6)


def test_a_guess_is_not_written_into_the_schema_as_if_it_had_been_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = patients()
    frame.assign(outcome=np.where(frame["outcome"] == "died", "B", "A")).to_csv("t.csv", index=False)
    assert command(monkeypatch, "look", "t.csv", "--label", "outcome", "--site", "hospital") == 0
    text = Path("t.schema.toml").read_text()
    assert '# Which class is the positive one? Write positive = ["B"] below, or the other one.' in text
    tree = {"data": {"table": "t.csv", "schema": "t.schema.toml"}, **RUN}
    with pytest.raises(ConfigError, match="which of the two classes of 'outcome', 'A' and 'B', is the positive one"):
        build(parse(tree))
    Path("t.schema.toml").write_text('positive = ["A"]\n' + text)
    assert build(parse(tree)).test.classes == ("B", "A")
