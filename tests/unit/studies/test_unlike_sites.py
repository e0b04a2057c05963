"""Sites that write the same thing otherwise: it is the same, or somebody is told, and nothing goes on silently wrong."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import Any

import hospitals
import numpy as np
import pandas as pd
import pytest
import torch

from rookery import Data
from rookery.data.split import by_hash, fingerprint, hold_out, hold_out_here
from rookery.errors import ConfigError, DataError, Refused
from rookery.studies.build import build
from rookery.studies.description import parse
from rookery.studies.federating import build_at
from rookery.studies.job import Job

R = np.random.default_rng(0)


def arrays(folder: Path, **labels: Any) -> Job:
    """A run over arrays whose labels each site writes in a way of its own."""
    for name, own in labels.items():
        np.savez(folder / f"{name}.npz", inputs=R.normal(size=(len(own), 2)).astype(np.float32), labels=own)
    hosts = {name: hospitals.host(folder, name, npz=f"{name}.npz") for name in labels}
    tree = hospitals.description(folder, data={"npz": "there", "test_at": "sites"})
    return build_at(parse(tree), hospitals.reached(folder, token_hex(4), **hosts))


def test_classes_are_written_alike_or_refused(tmp_path: Path) -> None:
    plain = np.arange(60) % 2
    job = arrays(tmp_path, north=plain, south=plain.astype(bool), west=plain.astype(float))
    assert job.test.classes == ("0", "1")
    for other, sentence in ((np.where(plain, "yes", "no"), "'0' and 'no' are different classes|'1' and 'yes' are different classes"),
                            (np.where(plain, "True", "False"), "'1' and 'True' are different classes|'0' and 'False' are")):
        with pytest.raises(DataError, match=f"labels must be written alike at all sites: ({sentence})"):
            arrays(tmp_path, north=plain, south=other, west=plain)
    with pytest.raises(DataError, match="'Cat' and 'cat', which differ in case or blanks only"):
        arrays(tmp_path, north=["cat", "dog"] * 30, south=["Cat", "dog"] * 30, west=["dog"] * 60)


def test_truth_is_the_same_in_parquet_csv_and_frames(tmp_path: Path) -> None:
    """pandas writes True into a CSV file, and reads it as a boolean."""
    schema = hospitals.SCHEMA.replace('kind = "id"', 'kind = "category"').replace("patient", "smokes")
    hospitals.write(tmp_path, schema)
    for name in hospitals.NAMES:
        frame = pd.read_csv(tmp_path / f"{name}.csv").rename(columns={"patient": "smokes"})
        frame["smokes"] = frame["age"] > 60
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        if name == "south":
            frame.to_parquet(tmp_path / "south.parquet")
    south = hospitals.host(tmp_path, "south", table="south.parquet")
    plain = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))
    mixed = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path, "mixed", south=south))
    assert plain.test.names["inputs"] == mixed.test.names["inputs"]
    assert "smokes=True" in "".join(plain.test.names["inputs"]).replace(" ", "=")
    one, other = plain.run(tmp_path / "run", "x", bundle=True), mixed.run(None, "x")
    assert torch.equal(plain.parameters(one.state), mixed.parameters(other.state))
    import rookery

    bundle, texts = rookery.load(tmp_path / "run/bundle"), pd.read_csv(tmp_path / "north.csv", dtype={"smokes": str})
    expected = bundle.predict_proba(texts)
    assert texts["smokes"].iloc[0] in ("True", "False")
    for smokes in (texts["smokes"] == "True", texts["smokes"].str.upper(), texts["smokes"].str.lower()):
        np.testing.assert_array_equal(bundle.predict_proba(texts.assign(smokes=smokes)), expected)


def test_dates_of_parquet_files_are_dates_however_others_write_them(tmp_path: Path) -> None:
    schema = hospitals.SCHEMA.replace('[columns.age]\nkind = "number"', '[columns.age]\nkind = "date"\nformat = "%d.%m.%Y"')
    hospitals.write(tmp_path, schema)
    for name in hospitals.NAMES:
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        frame["age"] = pd.Timestamp("2020-01-01") + pd.to_timedelta((frame["age"] * 10).astype(int), "D")
        frame.to_parquet(tmp_path / f"{name}.parquet")
        frame.assign(age=frame["age"].dt.strftime("%d.%m.%Y")).to_csv(tmp_path / f"{name}.csv", index=False)
    south = hospitals.host(tmp_path, "south", table="south.parquet")
    plain = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))
    mixed = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path, "mixed", south=south))
    assert torch.equal(plain.parameters(plain.run(None, "x").state), mixed.parameters(mixed.run(None, "x").state))


def test_categories_that_sites_spell_otherwise_are_told(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    table = tmp_path / "south.csv"
    table.write_text(table.read_text().replace(",low,", ",Low,"))
    job = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))
    assert any("column 'dose' has 'Low' and 'low', which differ in case or blanks only" in note for note in job.notes)


@pytest.mark.parametrize(("entries", "sentence"), [
    ({"label": "sex"}, 'label = "sex" is not what .*schema.toml says, label = "outcome"'),
    ({"site": "ward"}, "site is about rows in one place"), ({"test": "north.csv"}, "test is about rows in one place"),
    ({"validation": 1.5}, "validation is the share of the rows that is held out, between 0 and 1; got 1.5"),
    ({"drop": ["age"]}, "drop is about a table here"),
])
def test_entries_that_real_sites_do_not_go_by_are_refused(entries: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    tree = hospitals.description(tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        build_at(parse(tree | {"data": {**tree["data"], **entries}}), hospitals.reached(tmp_path))
    build_at(parse(tree | {"data": {**tree["data"], "label": "outcome"}}), hospitals.reached(tmp_path))


def test_a_site_too_small_to_hold_a_group_out_trains_as_in_a_simulation(tmp_path: Path) -> None:
    hospitals.write(tmp_path, 'group = "patient"\n' + hospitals.SCHEMA)
    names = np.asarray([f"p{k}" for k in range(200)])
    keys = fingerprint(names)
    kept = names[~by_hash(keys, 0.25, 3, "test") & ~by_hash(keys, 0.2, 3, "validation")][:2]
    held = names[by_hash(keys, 0.2, 3, "validation")][:1]
    for site, few in (("south", kept), ("west", [kept[0], held[0]])):
        frame = pd.read_csv(tmp_path / f"{site}.csv").iloc[:20]
        frame["patient"] = [few[k % len(few)] for k in range(len(frame))]
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
    every = [pd.read_csv(tmp_path / f"{name}.csv").assign(hospital=name) for name in hospitals.NAMES]
    pd.concat(every).to_csv(tmp_path / "all.csv", index=False)
    tree = hospitals.description(tmp_path)
    real = build_at(parse(tree), hospitals.reached(tmp_path))
    simulated = build(parse(hospitals.simulated(tmp_path, tree)), tmp_path / "simulated")
    assert real.fed.data.sizes.tolist() == simulated.fed.data.sizes.tolist()
    one, other = real.run(None, "x"), simulated.run(None, "x")
    assert torch.equal(real.parameters(one.state), simulated.parameters(other.state))
    for name in hospitals.NAMES:  # and where nobody can
        frame = pd.read_csv(tmp_path / f"{name}.csv").assign(patient=kept[0])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(ConfigError, match=r"no site can hold .* rows out of so few, or without splitting a group"):
        build_at(parse(tree), hospitals.reached(tmp_path, "none"))


def test_arrays_of_patients_are_held_out_alike_at_sites_and_in_one_place(tmp_path: Path) -> None:
    """Also at a site that has a single patient."""
    fields = {"inputs": R.normal(size=(200, 2)).astype(np.float32), "labels": np.arange(200) % 2,
              "patient": np.where(np.arange(200) < 180, np.arange(200) % 40, 50), "hospital": np.repeat([0, 1, 2], [100, 80, 20])}
    np.savez(tmp_path / "all.npz", **fields)
    hosts = {}
    for place, name in enumerate(("0", "1", "2")):
        own = {key: value[fields["hospital"] == place] for key, value in fields.items() if key != "hospital"}
        np.savez(tmp_path / f"{name}.npz", **own)
        hosts[name] = hospitals.host(tmp_path, name, npz=f"{name}.npz", group="patient")
    tree = hospitals.description(tmp_path, data={"npz": "there", "test_at": "sites"})
    transport = hospitals.InProcess({name: one.answer for name, one in hosts.items()})
    real = build_at(parse(tree), hospitals.Reached(transport, tuple(hosts), "a run"))
    one = {"npz": str(tmp_path / "all.npz"), "label": "labels", "site": "hospital", "group": "patient", "test_at": "sites"}
    simulated = build(parse(tree | {"data": one, "federation": {**tree["federation"], "engine": "wire"}}), tmp_path / "simulated")
    assert real.fed.data.sizes.tolist() == simulated.fed.data.sizes.tolist()
    assert torch.equal(real.parameters(real.run(None, "x").state), simulated.parameters(simulated.run(None, "x").state))


def test_groups_too_few_in_one_place_are_told_of(tmp_path: Path) -> None:
    hospitals.write(tmp_path, 'group = "patient"\n' + hospitals.SCHEMA)
    frame = pd.read_csv(tmp_path / "all.csv").assign(patient="p")
    frame.to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(DataError, match=r"1 values of 'patient' are too few to set a share of 0.25 aside for the test"):
        build(parse(hospitals.simulated(tmp_path, hospitals.description(tmp_path))), tmp_path / "simulated")


def test_rows_of_which_some_clients_hold_all_out_and_the_others_none() -> None:
    names = np.arange(1000)
    held, kept = (int(names[mask][0]) for mask in (by_hash(names, 0.2, 0, "validation"), ~by_hash(names, 0.2, 0, "validation")))
    data = Data.from_parts({"a": {"group": [held] * 4}, "b": {"group": [kept] * 4}})
    with pytest.raises(DataError, match="no client can hold rows out"):
        hold_out(data, 0.2, 0, "group")
    train, nothing = hold_out_here(data, 0.2, 0, "group")
    assert (train.names, nothing) == (("b",), None)  # the first one is in neither part, as where others hold rows out
    with pytest.raises(DataError, match="all rows are of groups that are held out"):
        hold_out_here(data.part(0), 0.2, 0, "group")


def test_a_share_is_no_percentage(tmp_path: Path) -> None:
    """Numbers of a table that has them as numbers are not read as what a schema says has a %."""
    hospitals.write(tmp_path, hospitals.SCHEMA.replace('[columns.age]\nkind = "number"', '[columns.age]\nkind = "number"\nsymbol = "%"'))
    for name in hospitals.NAMES:
        frame = pd.read_csv(tmp_path / f"{name}.csv", dtype=str)
        frame.assign(age=frame["age"] + " %").to_csv(tmp_path / f"{name}.csv", index=False)
        frame.assign(age=frame["age"].astype(float) / 100).to_parquet(tmp_path / f"{name}.parquet")
    build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))
    south = hospitals.host(tmp_path, "south", table="south.parquet")
    with pytest.raises(Refused, match="the rows of this site do not fit this run"):
        build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path, "mixed", south=south))
    said = (tmp_path / "south-runs/refused.jsonl").read_text()
    assert "must hold percentages with their %" in said
    assert "the file is written otherwise than the schema says: correct one of them" in said
