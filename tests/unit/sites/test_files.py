"""Rows in files: what their owner lets be asked of them, and that nothing else is looked for because a server named it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import hospitals
import numpy as np
import pytest
import torch

from rookery.data.tables import read_schema
from rookery.errors import ConfigError, DataError, Refused
from rookery.sites.files import Files, RowsSection
from rookery.sites.rules import Rules
from rookery.studies.description import parse
from rookery.studies.modules import find_allowed
from rookery.studies.terms import Terms


def terms(folder: Path, **sections: dict[str, Any]) -> Terms:
    """Those of a run in which sites have not agreed yet."""
    config = parse(hospitals.description(folder, **sections))
    return Terms.of(config, "columns", schema=read_schema(folder / "schema.toml").to_json(), names=hospitals.NAMES)


def prepare(folder: Path, said: Terms | dict[str, Any], may: Rules | None = None, modules: tuple[str, ...] = (), **rows: Any) -> Any:
    owner = Files("north", RowsSection(**({"table": "north.csv"} | rows)), modules, folder)
    return owner.prepare(said if isinstance(said, dict) else said.to_json(), may or hospitals.rules())


def test_a_sites_rows_before_they_are_encoded(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    _, data = prepare(tmp_path, terms(tmp_path))
    assert data.names == ("north",)
    assert sorted(data.fields) == ["labels", "texts", "there", "values"]
    several = tmp_path / "north.csv"
    several.write_text((tmp_path / "all.csv").read_text())
    _, data = prepare(tmp_path, terms(tmp_path), site="hospital")
    assert data.names == hospitals.NAMES


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[rows\] names .*north\.csv, which is not there"):
        Files("north", RowsSection(table="north.csv"), (), tmp_path)


def test_rows_are_read_again_when_their_file_has_changed(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    owner = Files("north", RowsSection(table="north.csv"), (), tmp_path)
    first = owner.prepare(terms(tmp_path).to_json(), hospitals.rules())[1]
    assert owner.prepare(terms(tmp_path).to_json(), hospitals.rules())[1] is first
    with (tmp_path / "north.csv").open("a") as file:
        file.write("50,f,low,1,ill\n" * 20)
    assert owner.prepare(terms(tmp_path).to_json(), hospitals.rules())[1].sizes[0] > first.sizes[0]


def test_what_there_is_to_say_about_cells_is_said_to_their_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hospitals.write(tmp_path)
    with (tmp_path / "north.csv").open("a") as file:
        file.write("about fifty,f,low,1,ill\n")
    prepare(tmp_path, terms(tmp_path))
    assert "'about fifty' in line" in caplog.text


@pytest.mark.parametrize(("rows", "sentence"), [
    ({"label": "sex"}, "'outcome' is not what may be predicted here"),
    ({"group": "patient"}, "rows of one 'patient' stay together here"),
    ({"columns": ("age", "outcome", "sex")}, "the column 'dose' is not among those that may be used here"),
])
def test_an_owner_says_what_may_be_asked(rows: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    with pytest.raises(Refused, match=sentence):
        prepare(tmp_path, terms(tmp_path), **rows)


def test_tables_and_arrays_are_not_taken_for_each_other(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    with pytest.raises(Refused, match="this site are a table, and the run is about arrays or pictures"):
        prepare(tmp_path, replace(terms(tmp_path), schema=None, label="labels"))
    (tmp_path / "north.npz").touch()
    with pytest.raises(Refused, match="this site are arrays, and the run is about a table"):
        prepare(tmp_path, terms(tmp_path), table=None, npz="north.npz")


def test_objectives_are_allowed_by_name(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    said = replace(terms(tmp_path), part="rows")
    with pytest.raises(Refused, match=r"cross_entropy is not among the objectives that may be minimised here \(may.objectives\)"):
        prepare(tmp_path, said, hospitals.rules(objectives=("kl_dro",)))
    with pytest.raises(Refused, match=r"FedAvg is not among the algorithms that may run here \(may.algorithms\)"):
        prepare(tmp_path, said, hospitals.rules(algorithms=("SCAFFOLD",)))


ENCODER = {"columns": [{"name": "age", "kind": "number", "mean": 60.0, "scale": 10.0, "missing": False}]}


@pytest.mark.parametrize(("part", "objective"), [("warm-up", "balanced_cross_entropy"), ("personal", "cross_entropy")])
def test_what_goes_before_and_after_a_run_is_allowed_by_name_too(part: str, objective: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    said = replace(terms(tmp_path), part=part, encoder=ENCODER)
    with pytest.raises(Refused, match=rf"^{objective} is not among the objectives that may be minimised here"):
        prepare(tmp_path, said, hospitals.rules(objectives=("kl_dro",)))
    prepare(tmp_path, said, hospitals.rules(objectives=("kl_dro", objective)))


@pytest.mark.parametrize("categories", [[], list(map(str, range(60)))])
def test_a_column_of_single_rows_is_none_of_groups(categories: list[str], tmp_path: Path) -> None:
    """What is told of a group would be told of a row, and a server can declare names that it guesses."""
    schema = hospitals.SCHEMA.replace('keep = ["sex"]', 'keep = ["sex", "patient"]')
    hospitals.write(tmp_path, schema + (f"categories = {categories}\n" if categories else ""))
    for part in ("columns", "rows", "personal"):
        said = replace(terms(tmp_path), part=part, encoder=ENCODER)
        with pytest.raises(Refused, match="the column 'patient' is not one of groups here: its values have fewer than min_batch=5 rows"):
            prepare(tmp_path, said)
        assert part == "columns" or "patient" in prepare(tmp_path, said, hospitals.rules(min_batch=1))[1].fields
        small = replace(said, run={**said.run, "data": {**said.run.get("data", {}), "validation": 0.95}})  # five rows to train on
        with pytest.raises(Refused, match="the column 'patient' is not one of groups here"):
            prepare(tmp_path, small)


def test_what_tells_rows_apart_is_predicted_only_where_the_owner_says_so(tmp_path: Path) -> None:
    """A label of which one value is positive gives away the rows of a person whose name is guessed."""
    names = [*map(str, range(60))]
    hospitals.write(tmp_path, f'label = "patient"\nclasses = {names}\npositive = ["7"]\n\n[columns.age]\nkind = "number"\n')
    said = terms(tmp_path)
    with pytest.raises(Refused, match="what is to be predicted has many values here, of fewer than min_batch=5 rows on average"):
        prepare(tmp_path, said)
    assert len(prepare(tmp_path, said, label="patient")[1].fields["labels"])
    np.savez(tmp_path / "north.npz", inputs=np.zeros((80, 2), np.float32), labels=np.arange(80) % 2, person=np.arange(80))
    asked = replace(said, schema=None, label="person")
    with pytest.raises(Refused, match="what is to be predicted has many values here"):
        prepare(tmp_path, asked, table=None, npz="north.npz")
    assert len(prepare(tmp_path, replace(asked, label="labels"), table=None, npz="north.npz")[1].fields["labels"])


def test_an_array_of_single_rows_is_none_of_groups(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    np.savez(tmp_path / "north.npz", inputs=np.zeros((80, 2), np.float32), labels=np.arange(80) % 2, person=np.arange(80),
             ward=np.arange(80) % 4)

    def asked(field: str) -> Any:
        said = terms(tmp_path, objective={"name": "group_dro", "field": field},
                     algorithm={"name": "FedDRO", "lr": 0.1, "beta": 0.1, "batch": 16})
        return prepare(tmp_path, replace(said, part="rows", schema=None, label="labels", classes=("0", "1")), table=None, npz="north.npz")

    asked("ward")
    with pytest.raises(Refused, match="the column 'person' is not one of groups here"):
        asked("person")


def test_a_sampler_names_no_column_of_single_rows(tmp_path: Path) -> None:
    """Batches that take groups of one row in turn give each row away."""
    hospitals.write(tmp_path, 'group = "patient"\n' + hospitals.SCHEMA)
    said = replace(terms(tmp_path, objective={"name": "cross_entropy", "sampling": {"name": "Balanced", "field": "group"}}),
                   part="rows", encoder=ENCODER)
    with pytest.raises(Refused, match="the column 'group' is not one of groups here"):
        prepare(tmp_path, said)
    prepare(tmp_path, said, hospitals.rules(min_batch=1))


def test_the_sensitive_column_is_none_of_single_rows_and_neither_are_its_cells(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    hospitals.write(tmp_path)
    np.savez(tmp_path / "north.npz", inputs=np.zeros((240, 2), np.float32), labels=np.arange(240) % 16, ward=r.integers(0, 16, 240),
             person=np.arange(240))

    def asked(sensitive: str, field: str) -> Any:
        said = terms(tmp_path, objective={"name": "group_dro", "field": field},
                     algorithm={"name": "FedDRO", "lr": 0.1, "beta": 0.1, "batch": 16})
        said = replace(said, part="rows", schema=None, label="labels", classes=tuple(map(str, range(16))), sensitive=sensitive,
                       cells=tuple(range(16 * 240)))
        return prepare(tmp_path, said, table=None, npz="north.npz", label="labels")

    asked("ward", "ward")
    for sensitive, field, found in (("person", "ward", "person"), ("ward", "class and group", "class and group")):
        with pytest.raises(Refused, match=f"the column {found!r} is not one of groups here"):
            asked(sensitive, field)


def test_nothing_is_encoded_but_the_inputs_of_the_schema(tmp_path: Path) -> None:
    """What the schema leaves out is not looked for among the columns that the owner names."""
    hospitals.write(tmp_path)
    allowed = ("age", "sex", "dose", "outcome")
    number = {"name": "patient", "kind": "number", "mean": 0.0, "scale": 1.0, "missing": False}
    said = replace(terms(tmp_path), part="rows", encoder={"columns": [*ENCODER["columns"], number]})
    with pytest.raises(Refused, match="the column 'patient' is encoded, and the schema does not have it among the inputs"):
        prepare(tmp_path, said, columns=allowed)
    prepare(tmp_path, replace(said, encoder=ENCODER), columns=allowed)


def test_files_without_a_line_of_names_have_those_that_their_owner_gives(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    expected = prepare(tmp_path, terms(tmp_path))[1]
    file = tmp_path / "north.csv"
    file.write_text(file.read_text().partition("\n")[2])
    with pytest.raises(DataError, match="has no column 'age'"):
        prepare(tmp_path, terms(tmp_path))
    header = tuple(hospitals.HEAD.split(","))
    _, found = prepare(tmp_path, terms(tmp_path), header=header)
    assert found.sizes.tolist() == expected.sizes.tolist()
    assert all(torch.equal(found.fields[name], column) for name, column in expected.fields.items())
    turned = ("outcome", *header[1:4], "age")  # a server's names for places would let it read one column as another
    said = replace(terms(tmp_path), schema={**(terms(tmp_path).schema or {}), "header": list(turned)})
    with pytest.raises(Refused, match=r"the schema names columns by their places \(header\)"):
        prepare(tmp_path, said, header=header, label="outcome")


def test_a_net_that_is_larger_than_a_frame_is_not_made(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    said = terms(tmp_path, model={"hidden": [100_000_000]})
    with pytest.raises(Refused, match="a net of 1526 MB does not fit into a frame, which may have 512 here"):
        prepare(tmp_path, replace(said, part="rows", encoder=ENCODER))


@pytest.mark.parametrize("section", [
    {"objective": {"name": "hostile_module:loss"}}, {"model": {"name": "hostile_module:Net"}},
    {"algorithm": {"name": "hostile_module:Own"}},
    {"objective": {"name": "cross_entropy", "sampling": {"name": "hostile_module:Draw"}}}])
def test_no_module_is_imported_because_a_server_names_it(section: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospitals.write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hostile_module.py").write_text("raise SystemExit(0)")
    said = terms(tmp_path).to_json()
    said["run"] |= section
    with pytest.raises(Refused, match="the module 'hostile_module' is not among those that a run may name here"):
        prepare(tmp_path, said)
    assert "hostile_module" not in sys.modules


OWN_MODULE = """import subprocess
from json import loads as loaded
from pathlib import Path
import torch

LIMIT = 3

class Net(torch.nn.Linear):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)

def made(inputs: int, classes: int) -> Net:
    return Net(inputs, classes)
"""


def test_an_allowed_module_is_asked_for_its_own_classes_and_functions_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for what it has imported, and nothing is reached through what it has."""
    hospitals.write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "allowed_module.py").write_text(OWN_MODULE)

    def ask(name: str) -> None:
        said = terms(tmp_path).to_json()
        said["run"] |= {"model": {"name": f"allowed_module:{name}"}}
        prepare(tmp_path, said, modules=("allowed_module",))

    ask("Net")
    ask("made")
    for name in ("subprocess.run", "subprocess", "Path", "loaded", "Net.forward", "Net.__init__", "LIMIT", "nothing", "", "__name__"):
        with pytest.raises(Refused) as error:
            ask(name)
        assert str(error.value) == (f"the run names 'allowed_module:{name}', which is no class or function that 'allowed_module' has "
                                    "of its own")
    for name in ("subprocess:run", "allowed_module.sub:Net", "ALLOWED_MODULE:Net"):
        with pytest.raises(Refused, match="is not among those that a run may name here"):
            find_allowed(name, "the run", ("allowed_module",))


@pytest.mark.parametrize(("change", "sentence"), [
    ({"part": "everything"}, "the part of a run is one of columns, rows"), ({"run": []}, "run of a run's terms is a table"),
    ({"schema": 3}, "schema of a run's terms is a table"), ({"names": "north"}, "names of a run's terms must be"),
    ({"encoder": 3}, "encoder of a run's terms is a table"), ({"more": 1}, "install the same version"),
    ({"run": {"data": {"table": "/etc/passwd"}, "algorithm": {"name": "FedAvg", "lr": 1.0}}}, r"\[data\] of a run's terms has validation"),
    ({"run": {"sites": {}}}, r"got \[sites\]"), ({"run": {"algorithm": {"name": "Nothing"}}}, "there is no algorithm 'Nothing'"),
])
def test_terms_that_are_none(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        prepare(tmp_path, terms(tmp_path).to_json() | change)


def test_a_schema_that_the_table_does_not_fit(tmp_path: Path) -> None:
    hospitals.write(tmp_path, hospitals.SCHEMA.replace("[columns.age]", "[columns.weight]"))
    with pytest.raises(DataError, match="has no column 'weight'"):
        prepare(tmp_path, terms(tmp_path))


@pytest.mark.parametrize(("section", "sentence"), [
    ({}, "give one of table, npz, images and own; got none of them"), ({"table": "a", "own": "b:c"}, "got table and own"),
    ({"own": "b:c", "label": "y"}, "label is about the columns of a table"), ({"npz": "a", "columns": ("b",)}, "columns is about a table"),
    ({"images": "a", "test": "b"}, "test is about the columns"),
])
def test_sections_that_say_two_things(section: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        RowsSection(**section)
