"""Runs from a description over real sites come to what a simulation of the same rows comes to, and refuse what needs these in one place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hospitals
import numpy as np
import pytest
import torch

from rookery.errors import Away, CheckpointError, ConfigError, DataError, Refused
from rookery.studies.build import build
from rookery.studies.description import parse
from rookery.studies.federating import Meeting, Reached, build_at, name_of
from rookery.studies.job import Job

RUNS: dict[str, dict[str, dict[str, Any]]] = {
    "FedAvg": {},
    "SCAFFOLD, weighted by positives, after a warm-up": {
        "algorithm": {"name": "SCAFFOLD", "lr": 0.1, "local_steps": 2, "batch": 16}, "warm_up": {"rounds": 2, "batch": 16},
        "federation": {"min_batch": 5, "seed": 3, "weights": "positives"}},
    "sites that adapt": {"personal": {"steps": 2, "batch": 8, "alone_steps": 4}},
    "groups that are named": {"objective": {"name": "group_dro", "field": "sex"},
                              "algorithm": {"name": "FedDRO", "lr": 0.05, "beta": 0.1, "local_steps": 2, "batch": 16}},
    "groups that are sites": {"objective": {"name": "group_dro", "field": "site"},
                              "algorithm": {"name": "FedDRO", "lr": 0.05, "beta": 0.1, "local_steps": 2, "batch": 16}},
    "the AP surrogate": {"objective": {"name": "ap_surrogate"},
                         "algorithm": {"name": "FCSG-M", "lr": 0.05, "local_steps": 2, "outer": 6, "inner": 8}}}


def both(folder: Path, **sections: dict[str, Any]) -> tuple[Job, Job]:
    """A run at the hospitals, and in one place."""
    tree = hospitals.description(folder, **sections)
    return (build_at(parse(tree), hospitals.reached(folder)),
            build(parse(hospitals.simulated(folder, tree)), folder / "in one place"))


@pytest.mark.parametrize("name", [name if name in ("FedAvg", "groups that are sites", "the AP surrogate") else
                                  pytest.param(name, marks=pytest.mark.slow) for name in RUNS])
def test_real_sites_come_to_what_a_simulation_comes_to(name: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    real, other = both(tmp_path, **RUNS[name])
    assert real.fed.data.fields == {}
    assert real.fed.data.names == other.fed.data.names
    assert real.fed.data.sizes.tolist() == other.fed.data.sizes.tolist()
    assert real.tested == other.tested > 0
    assert real.forecast() == other.forecast() is not None
    found, expected = real.run(tmp_path / "at sites", "x", bundle=True), other.run(tmp_path / "in one place", "x", bundle=True)
    assert torch.equal(real.parameters(found.state), other.parameters(expected.state))
    for file in ("encoder.json", "model.safetensors"):
        assert (tmp_path / "at sites/bundle" / file).read_bytes() == (tmp_path / "in one place/bundle" / file).read_bytes()
    for row, like in zip(found.history, expected.history, strict=True):
        some = {key: value for key, value in like.items() if not key.endswith(" exact") and key != "seconds"}
        assert {key: value for key, value in row.items() if key != "seconds"} == pytest.approx(some, rel=1e-5, abs=1e-7)
    said = [json.loads((tmp_path / where / "about.json").read_text()) for where in ("at sites", "in one place")]
    assert said[0]["assessment"]["confusion"] == said[1]["assessment"]["confusion"]
    assert said[0]["ledger"].keys() == said[1]["ledger"].keys()


def test_patients_stay_on_one_side_of_every_split(tmp_path: Path) -> None:
    hospitals.write(tmp_path, f'group = "patient"\n{hospitals.SCHEMA}')
    real, other = both(tmp_path)
    found, expected = real.run(None, "x"), other.run(None, "x")
    assert torch.equal(real.parameters(found.state), other.parameters(expected.state))
    assert real.tested == other.tested
    held = {name: set(other.fed.data.splits[name].column("group").tolist()) for name in ("validation", "test")}  # type: ignore[union-attr]
    train = set(other.fed.data.column("group").tolist())
    assert not train & held["validation"] | train & held["test"] | held["validation"] & held["test"]


def test_draws_that_no_server_foresees(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    hosts = {name: hospitals.host(tmp_path, name, hospitals.rules(salt="secret")) for name in hospitals.NAMES}
    secret = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path, **hosts))
    known = build(parse(hospitals.simulated(tmp_path, hospitals.description(tmp_path))), tmp_path / "other")
    found, expected = (job.parameters(job.run(None, "x").state) for job in (secret, known))
    assert secret.fed.data.sizes.tolist() == known.fed.data.sizes.tolist()  # which rows are held out is no secret
    assert not torch.equal(found, expected)


def test_a_site_that_is_away_is_left_out_under_a_quorum(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    gone: list[int] = []
    west = hospitals.host(tmp_path, "west")

    class Flaky:
        """Answers until its hospital is away."""

        def __init__(self) -> None:
            self.inner = hospitals.reached(tmp_path, west=west).transport

        def exchange(self, frames: Any, seconds: float) -> Any:
            there = self.inner.exchange({name: frame for name, frame in frames.items() if not (gone and name == "west")}, seconds)
            return {name: there.get(name, TimeoutError("nobody")) for name in frames}

    job = build_at(parse(hospitals.description(tmp_path)), Reached(Flaky(), hospitals.NAMES, "a run", quorum=2))
    result = job.run(tmp_path / "run", "x", callbacks=[lambda row: gone.append(1)])
    assert result.rounds == 4
    assert job.fed.away == {"west"}
    strict = build_at(parse(hospitals.description(tmp_path)), Reached(Flaky(), hospitals.NAMES[:2], "another"))
    assert strict.fed.quorum == 2
    with pytest.raises(Away, match="west"):
        build_at(parse(hospitals.description(tmp_path)), Reached(Flaky(), hospitals.NAMES, "a third"))


def test_arrays_and_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    r = np.random.default_rng(0)
    for name in hospitals.NAMES:
        labels = r.choice(["cat", "dog"] if name != "west" else ["dog", "owl"], 60)
        inputs = (r.normal(0, 40, (60, 4, 4)) + 120 + 60 * (labels == "dog")[:, None, None]).clip(0, 255).astype(np.uint8)
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=labels)
        for place, (label, picture) in enumerate(zip(labels, inputs, strict=True)):
            (tmp_path / name / label).mkdir(parents=True, exist_ok=True)
            image.fromarray(picture).save(tmp_path / name / label / f"{place}.png")
    kinds: dict[str, tuple[dict[str, Any], Callable[[str], dict[str, str]]]] = {
        "arrays": ({"npz": "at the sites"}, lambda name: {"npz": f"{name}.npz"}),
        "pictures": ({"images": "at the sites", "size": 4}, lambda name: {"images": name})}
    for kind, (section, rows) in kinds.items():
        tree = hospitals.description(tmp_path, data={**section, "test_at": "sites"})
        hosts = {name: hospitals.host(tmp_path, name, **rows(name)) for name in hospitals.NAMES}
        job = build_at(parse(tree), hospitals.reached(tmp_path, kind, **hosts))
        assert job.test.classes == ("cat", "dog", "owl")
        assert job.test.fields["inputs"].shape[1:] == ((1, 4, 4) if kind == "arrays" else (3, 4, 4))
        coming, found = job.forecast(), job.run(tmp_path / kind, "x", bundle=True)
        assert found.history[-1]["test accuracy"] > 0.5
        assert coming is not None
        assert (coming.exchanges, coming.up + coming.down) == (found.history[-1]["exchanges"], found.history[-1]["bytes"])
    two = hospitals.description(tmp_path, data={"npz": "there", "test_at": "sites", "positive": ["dog"]})
    hosts = {name: hospitals.host(tmp_path, name, npz=f"{name}.npz") for name in hospitals.NAMES}
    assert build_at(parse(two), hospitals.reached(tmp_path, "two", **hosts)).test.classes == ("negative", "positive")
    tree["data"]["category_rows"] = 1000
    with pytest.raises(DataError, match="every class needs 1000 training rows at some site"):
        build_at(parse(tree), hospitals.reached(tmp_path, "rare", **hosts))
    np.savez(tmp_path / "west.npz", inputs=np.zeros((20, 5, 4), dtype=np.uint8), labels=["dog"] * 20)
    with pytest.raises(DataError, match=r"same shape at all sites; 'north' has \(1, 4, 4\) and 'west' \(1, 5, 4\)"):
        build_at(parse(two), hospitals.reached(tmp_path, "odd", **hosts))


def test_sites_that_ask_for_more_rows_than_a_subgroup_shows(tmp_path: Path) -> None:
    """Subgroups are then told of from as many rows as anything is computed from."""
    hospitals.write(tmp_path)
    tree = hospitals.description(tmp_path, federation={"min_batch": 12, "seed": 3})
    tree["data"]["category_rows"] = 12
    hosts = {name: hospitals.host(tmp_path, name, hospitals.rules(min_batch=12)) for name in hospitals.NAMES}
    build_at(parse(tree), hospitals.reached(tmp_path, **hosts)).run(tmp_path / "run", "x", bundle=True)
    groups = json.loads((tmp_path / "run/about.json").read_text())["assessment"]["subgroups"]["sex"]
    assert [group["group"] for group in groups] == ["f", "m"]
    other = build(parse(hospitals.simulated(tmp_path, tree)), tmp_path / "simulated")
    other.run(tmp_path / "simulated", "x", bundle=True)
    like = json.loads((tmp_path / "simulated/about.json").read_text())["assessment"]["subgroups"]["sex"]
    assert [(group["rows"], group["withheld"]) for group in groups] == [(group["rows"], group["withheld"]) for group in like]
    assert sum(group["withheld"] for group in groups) > 0


def test_positives_of_arrays_are_those_of_the_classes_that_all_sites_have(tmp_path: Path) -> None:
    """A site of one class has it as its first and only one, whether it is positive or not."""
    for name, rows, label in zip(hospitals.NAMES, (60, 30, 90), ("dog", "cat", "dog"), strict=True):
        np.savez(tmp_path / f"{name}.npz", inputs=np.zeros((rows, 2), dtype=np.float32), labels=[label] * rows)
    tree = hospitals.description(tmp_path, data={"npz": "there", "test_at": "sites", "positive": ["dog"]},
                                 federation={"min_batch": 5, "weights": "positives"})
    hosts = {name: hospitals.host(tmp_path, name, npz=f"{name}.npz") for name in hospitals.NAMES}
    fed = build_at(parse(tree), hospitals.reached(tmp_path, **hosts)).fed
    north, _, west = fed.data.sizes.tolist()
    assert (fed.weights / fed.weights.sum()).tolist() == pytest.approx([north / (north + west), 0, west / (north + west)])


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"data": {"name": "digits"}}, "rows of real sites are in files of theirs"),
    ({"data": {"schema": "schema.toml"}}, "write test_at = \"sites\""),
    ({"data": {"table": "all.csv", "label": "outcome", "test_at": "sites"}}, "by a schema: write one with rookery look"),
    ({"data": {"schema": "schema.toml", "test_at": "sites", "keep_positives": 0.5}}, "real sites keep all their rows"),
    ({"sites": {"how": "iid"}}, "how = \"iid\" spreads rows in a simulation"),
    ({"sites": {"least": 3}}, "least = 3 spreads rows in a simulation"),
    ({"federation": {"engine": "ray"}}, "engine = \"ray\" is of a simulation"),
    ({"federation": {"min_batch": 2}}, "north computes nothing from fewer than 5 rows at once, and federation.min_batch is 2"),
    ({"objective": {"name": "group_dro", "field": "dose"},
      "algorithm": {"name": "FedDRO", "lr": 0.1, "beta": 0.1}}, "whose values real sites must agree on"),
])
def test_what_needs_rows_in_one_place_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hospitals.write(tmp_path))
    with pytest.raises(ConfigError) as error:
        build_at(parse(hospitals.description(tmp_path, **changes)), hospitals.reached(tmp_path))
    assert sentence in str(error.value)


@pytest.mark.parametrize(("old", "new", "sentence"), [
    ('classes = ["ill", "well"]\n', "", "must agree on classes"),
    ('positive = ["ill"]\n', "", "which of 'ill' and 'well' is the positive class"),
    ('categories = ["f", "m"]\n', "", "the column 'sex' is kept, and its values are numbered alike"),
])
def test_a_schema_says_what_sites_must_agree_on(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path, hospitals.SCHEMA.replace(old, new))
    with pytest.raises(ConfigError, match=sentence):
        build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))


def test_a_simulation_has_no_rows_without_a_table(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    with pytest.raises(ConfigError, match="write rookery federate, or name a table"):
        build(parse(hospitals.description(tmp_path)))


def test_rows_that_do_not_fit_are_told_at_their_site_only(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    table = tmp_path / "south.csv"
    table.write_text(table.read_text().replace(",m,", ",unknown to all,", 1))
    with pytest.raises(Refused) as error:
        build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))
    assert "site 'south': the rows of this site do not fit this run; the site's log says why" in str(error.value)
    assert "unknown to all" in (tmp_path / "south-runs/refused.jsonl").read_text()


def test_a_column_that_one_site_does_not_have_and_numbers_that_none_can_have(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    table = tmp_path / "south.csv"
    head, *rows = table.read_text().splitlines()
    table.write_text("\n".join([head, *("," + row.split(",", 1)[1] for row in rows), ""]))
    job = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))
    assert "age missing" in job.test.names["inputs"]
    for name in ("north", "west"):
        other = tmp_path / f"{name}.csv"
        other.write_text("\n".join([head, *("," + row.split(",", 1)[1] for row in other.read_text().splitlines()[1:]), ""]))
    with pytest.raises(DataError, match="column 'age' must have a value in some training row"):
        build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path, "none"))
    table.write_text("\n".join([head, "1e300,f,low,1,ill", *rows, ""]))
    with pytest.raises(Refused, match="the rows of this site do not fit this run"):
        build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path, "far"))
    assert "line 2 has 1e+300" in (tmp_path / "south-runs/refused.jsonl").read_text()


def test_half_precision(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    tree = hospitals.description(tmp_path, federation={"min_batch": 5, "precision": "bfloat16"})
    assert build_at(parse(tree), hospitals.reached(tmp_path)).run(None, "x").rounds == 4


def test_every_site_writes_its_files_in_its_own_way(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    one = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path))
    table = tmp_path / "south.csv"
    table.write_bytes(table.read_text().replace(",", ";").encode("utf-16"))
    other = build_at(parse(hospitals.description(tmp_path)), hospitals.reached(tmp_path, "another"))
    assert torch.equal(one.parameters(one.run(None, "x").state), other.parameters(other.run(None, "x").state))


def test_where_sites_are(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text('[server]\ncertificates = "mine"\nquorum = 2\n[sites]\nnorth = "10.0.0.7:7443"\n')
    found = Meeting.read(file)
    assert (found.certificates, found.server.quorum, found.sites) == (tmp_path / "mine", 2, {"north": "10.0.0.7:7443"})
    for text, sentence in (("[server]\n", "needs the section"), ("[sites]\n", "needs the section"),
                           ("[sites]\nnorth = 3\n", "needs the section"), ("[site]\n", "did you mean 'sites'"),
                           ("[server]\nseconds = 0\n[sites]\na = \"b\"\n", "are positive")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=sentence):
            Meeting.read(file)
    for address, sentence in (("10.0.0.7", "host:port or unix:path, .* that of 'north' in .* is '10.0.0.7'"), ("a:70000", "host:port"),
                              (":7443", "host:port"), ("10.0.0.7:7443", r"'north' at 10\.0\.0\.7:7443 .* write certificates = ")):
        file.write_text(f'[sites]\nnorth = "{address}"\n')
        with pytest.raises(ConfigError, match=sentence):
            Meeting.read(file).transport()


def test_a_run_keeps_the_name_that_sites_know_it_by(tmp_path: Path) -> None:
    first = name_of(tmp_path, resume=False)
    assert name_of(tmp_path, resume=True) == first != name_of(tmp_path, resume=False)
    (tmp_path / "federation.json").write_text("{}")
    with pytest.raises(CheckpointError, match="by which name real sites know this run"):
        name_of(tmp_path, resume=True)
