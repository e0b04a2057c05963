"""A fit over real sites gives the bundle that a simulation gives, and says what it is worth from sums."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import hospitals
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

import rookery
from rookery.errors import ConfigError, Refused
from rookery.fitting import Options, fit
from rookery.fitting.bench import ANY
from rookery.fitting.fit import ready
from rookery.fitting.options import Fitted, Ready
from rookery.fitting.training import tree_of
from rookery.objectives.fairness import Kind, fairness_gap
from rookery.studies.build import Prepared, assemble, prepare, stand_in
from rookery.studies.description import parse
from rookery.studies.federating import Reached
from rookery.studies.job import number_tested

MAY = {"algorithms": ("FedAvg", "CODA+", "LocalSCGDAM", "LocalSGDAM", "FCSG-M", "Acc-FCSG-M", "FedDRO"),
       "objectives": ("cross_entropy", "balanced_cross_entropy", "auc", "ap_surrogate", "last_layer", "partial_auc", "kl_dro", "cvar_dro",
                      "group_dro", "fair", "maml")}
QUICK = Options(rounds=2, local_steps=2, batch=16, jobs=1, pool=False)
GROUPED = replace(QUICK, sensitive="sex")


def sections(folder: Path, **changes: Any) -> dict[str, Any]:
    """Those of a fit at the hospitals."""
    return {name: table for name, table in hospitals.description(folder, **changes).items() if name not in ("algorithm", "run")}


def asked(folder: Path, run: str, **changes: Any) -> Reached:
    """The hospitals, which allow all that fits need."""
    may = hospitals.rules(**MAY | changes)
    return hospitals.reached(folder, run, **{name: hospitals.host(folder, name, may) for name in hospitals.NAMES})


def bundles(folder: Path, goal: str, options: Options = QUICK) -> tuple[Fitted, Fitted]:
    """A fit at the hospitals, and one over their rows in one table, which comes to the same."""
    tree, known = sections(folder), list[list[Any]]()

    def told(start: Ready) -> None:
        held = start.rows.data.split("validation")
        assert held is not None
        known.append([*start.rows.data.sizes.tolist(), *held.sizes.tolist(), number_tested(start.rows.data, start.rows.test),
                      start.rows.notes, start.setting])

    real = fit(tree, goal, folder / f"{goal} at sites", options, None, told, asked(folder, f"fit {goal}"))
    simulated = fit(hospitals.simulated(folder, tree), goal, folder / f"{goal} in one place", options, None, told)
    assert known[0] == known[1]
    assert [real.told[name] for name in ("kept", "splits", "notes")] == [simulated.told[name] for name in ("kept", "splits", "notes")]
    exact = 2e-3 if goal in ("auc", "ap", "partial_auc") else 1e-6  # of histograms, or of the rows themselves; six digits are told
    for one, other in zip(real.told["rows"], simulated.told["rows"], strict=True):
        assert (one["label"], one["setting"], one["note"]) == (other["label"], other["setting"], other["note"])
        assert one["validation"] == (other["validation"] if one["kind"] == "reference" else pytest.approx(other["validation"], abs=1e-5))
        assert one["test"][0] == pytest.approx(other["test"][0], abs=exact)
        assert one["test"][1:] == pytest.approx(other["test"][1:], abs=0.08)  # other draws of the same rows
    assert real.told["rows"][-1]["label"] == "every site alone"
    for file in ("model.safetensors", "encoder.json"):
        assert (real.bundle / file).read_bytes() == (simulated.bundle / file).read_bytes()
    first, second = (json.loads((done.bundle / "bundle.json").read_text()) for done in (real, simulated))
    assert first["threshold"] == pytest.approx(second["threshold"], rel=1e-5)
    assert first["found"]["confusion"] == second["found"]["confusion"]
    return real, simulated


def in_one_place(folder: Path) -> Prepared:
    """The rows as a simulation of the fit has them."""
    return prepare(parse({**ANY, **hospitals.simulated(folder, sections(folder))}))


def kept(done: Fitted) -> dict[str, Any]:
    return next(row for row in done.told["rows"] if row["kept"])


def pooled(folder: Path, bundle: Path) -> pd.DataFrame:
    """The hospitals' test rows in one place, with a bundle's probabilities and decisions."""
    whole, model = in_one_place(folder).test.rows, rookery.load(bundle)
    assert whole is not None
    table = whole.sheet.frame.iloc[whole.test].reset_index(drop=True)
    return table.assign(score=np.asarray(model.predict_proba(table))[:, 1], decided=np.asarray(model.predict(table)))


def test_the_bundle_of_a_simulation(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    bundles(tmp_path, "auc")


def test_the_worst_site_at_sites(brief: None, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    real, _ = bundles(tmp_path, "worst_site")
    rows = pooled(tmp_path, real.bundle)
    worst = min(roc_auc_score(own["outcome"] == "ill", own["score"]) for _, own in rows.groupby("hospital"))
    assert kept(real)["test"][0] == pytest.approx(worst, abs=1e-6)


def test_the_worst_group_at_sites(brief: None, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    real, _ = bundles(tmp_path, "worst_group", GROUPED)
    rows = pooled(tmp_path, real.bundle)
    worst = min((own["decided"] == own["outcome"]).mean() for _, own in rows.groupby(["sex", "outcome"]))
    assert kept(real)["test"][0] == pytest.approx(worst, abs=1e-6)


@pytest.mark.parametrize("kind", ["equality of opportunity", pytest.param("equalised odds", marks=pytest.mark.slow),
                                  pytest.param("demographic parity", marks=pytest.mark.slow)])
def test_fairness_at_sites(kind: Kind, brief: None, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    real, _ = bundles(tmp_path, "fair", replace(GROUPED, kind=kind))
    rows = pooled(tmp_path, real.bundle)
    ill, said, sex = rows["outcome"] == "ill", rows["decided"] == "ill", rows["sex"] == "m"
    balanced = (said[ill].mean() + 1 - said[~ill].mean()) / 2
    fair = balanced - max(0.0, fairness_gap(said, ill, sex.astype(int), kind) - 0.05)
    assert kept(real)["test"][0] == pytest.approx(fair, abs=1e-6)


@pytest.mark.parametrize("goal", ["worst_group", pytest.param("worst_site", marks=pytest.mark.slow)])
def test_arrays_at_sites(goal: str, brief: None, tmp_path: Path) -> None:
    """The sites' classes are numbered by what they agreed on, one of which a site lacks."""
    r, parts = np.random.default_rng(0), {}
    for name, rows in zip(hospitals.NAMES, (150, 90, 60), strict=True):
        labels = r.choice(["cat", "dog", "owl"] if name != "south" else ["dog", "owl"], rows)
        parts[name] = {"inputs": (r.normal(size=(rows, 3)) + np.stack([labels == k for k in ("cat", "dog", "owl")], 1)).astype(np.float32),
                       "labels": labels, "hospital": np.full(rows, name)}
        np.savez(tmp_path / f"{name}.npz", **{key: parts[name][key] for key in ("inputs", "labels")})
    whole = {key: np.concatenate([part[key] for part in parts.values()]) for key in ("inputs", "labels", "hospital")}
    np.savez(tmp_path / "all.npz", **whole)
    may = hospitals.rules(**MAY)
    hosts = {name: hospitals.host(tmp_path, name, may, npz=f"{name}.npz") for name in hospitals.NAMES}
    tree = sections(tmp_path, data={"npz": "there", "test_at": "sites"})
    real = fit(tree, goal, tmp_path / "real", QUICK, reached=hospitals.reached(tmp_path, goal, **hosts))
    other = {"data": {"npz": str(tmp_path / "all.npz"), "site": "hospital", "test_at": "sites"},
             "federation": {**tree["federation"], "engine": "wire"}}
    simulated = fit(tree | other, goal, tmp_path / "simulated", QUICK)
    assert (real.bundle / "model.safetensors").read_bytes() == (simulated.bundle / "model.safetensors").read_bytes()
    for one, like in zip(real.told["rows"], simulated.told["rows"], strict=True):
        assert (one["label"], one["setting"]) == (like["label"], like["setting"])
        assert [one["validation"] or 0.0, one["test"][0]] == pytest.approx([like["validation"] or 0.0, like["test"][0]], abs=1e-5)


def test_models_that_sites_adapt_at_sites(brief: None, tmp_path: Path) -> None:
    """Every hospital takes five full steps of 0.1 on the cross-entropy of its own training rows."""
    hospitals.write(tmp_path)
    real, _ = bundles(tmp_path, "personal")
    data, net, right, number = in_one_place(tmp_path).data, rookery.load(real.bundle).net, 0, 0
    later = data.split("test")
    assert later is not None
    assert kept(real)["label"] == "FedAvg, adapted"
    for name in later.names:
        own, train, test = deepcopy(net).train(), data.views(data.names.index(name)), later.views(later.names.index(name))
        for _ in range(5):
            loss = torch.nn.functional.cross_entropy(own(train["inputs"]), train["labels"])
            for weight, gradient in zip(own.parameters(), torch.autograd.grad(loss, list(own.parameters())), strict=True):
                weight.data -= 0.1 * gradient
        right, number = right + int((own(test["inputs"]).argmax(1) == test["labels"]).sum()), number + len(test["labels"])
    assert kept(real)["test"][0] == pytest.approx(right / number, abs=1e-6)


@pytest.mark.parametrize(("goal", "options", "changes", "sentence"), [
    ("fair", QUICK, {}, "the goal fair is about groups: name their column as sensitive"),
    ("fair", replace(QUICK, sensitive="dose"), {}, r"they have sex: keep it, with keep = \["),
    ("fair", replace(QUICK, sensitive="dose"), {"data": {"keep": ["dose"]}}, r"declare them in .*schema.toml, as in \[columns.dose\]"),
    ("worst_group", replace(QUICK, sensitive="outcome"), {}, "'outcome' is what is to be predicted: name another one"),
    ("worst_site", QUICK, {"federation": {"only_sums": True}}, "needs scores of single sites.*leave it out, or take a goal about all rows"),
])
def test_what_a_goal_at_sites_needs(goal: str, options: Options, changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    tree = sections(tmp_path)
    tree |= {name: {**tree[name], **table} for name, table in changes.items()}
    with pytest.raises(ConfigError, match=sentence):
        fit(tree, goal, tmp_path / "fit", options, reached=asked(tmp_path, goal))


def only(folder: Path, site: str, wanted: Callable[[str], bool]) -> None:
    """Leave some rows of a hospital there, in the table of all as well."""
    for name, those in ((site, wanted), ("all", lambda line: not line.startswith(f"{site},") or wanted(line))):
        head, *lines = (folder / f"{name}.csv").read_text().splitlines()
        (folder / f"{name}.csv").write_text("\n".join([head, *filter(those, lines), ""]))


@pytest.mark.parametrize(("goal", "wanted", "schema", "note"), [
    ("worst_site", lambda line: line.endswith("well"), "", "2 of 3 sites have 5 validation rows of either class"),
    pytest.param("worst_group", lambda line: ",f," in line, "", None, marks=pytest.mark.slow),
    ("fair", lambda line: True, "\"x\", ", "The group 'x' of 'sex' has no training rows by which to compare it"),
])
def test_sites_without_a_class_or_a_group(goal: str, wanted: Callable[[str], bool], schema: str, note: str | None, brief: None,
                                          tmp_path: Path) -> None:
    """A group that no row is of has the first number, so that cells are numbered by what there is; the simulation comes to the same."""
    hospitals.write(tmp_path, hospitals.SCHEMA.replace("[\"f\"", f"[{schema}\"f\""))
    only(tmp_path, "west", wanted)
    real, _ = bundles(tmp_path, goal, GROUPED)
    assert not note or any(said.startswith(note) for said in real.told["notes"])


def test_sites_that_are_too_small_to_learn_a_start_for(tmp_path: Path) -> None:
    """Half of the smallest site's rows are fewer than any batch may have."""
    hospitals.write(tmp_path)
    (tmp_path / "west.csv").write_text("\n".join([*(tmp_path / "west.csv").read_text().splitlines()[:14], ""]))
    start = ready(sections(tmp_path), "personal", tmp_path / "fit", QUICK, asked(tmp_path, "small"))
    assert 5 <= start.setting.least < 10
    assert [method.label for method in start.methods] == ["FedAvg", "FedAvg, adapted"]
    assert any(f"the smallest site trains on {start.setting.least}," in note for note in start.rows.notes)


def test_lines_for_reference_that_cannot_be_there_are_told_of(brief: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was trained is left nevertheless."""
    def refused(*_: Any) -> Any:
        raise Refused("site 'west': a run may take 10 steps here")

    hospitals.write(tmp_path)
    monkeypatch.setattr("rookery.fitting.elsewhere.alone", refused)
    done = fit(sections(tmp_path), "personal", tmp_path / "fit", replace(QUICK, pool=True), reached=asked(tmp_path, "lines"))
    assert {row["kind"] for row in done.told["rows"]} == {"opponent", "nested"}
    assert done.told["notes"][-2:] == ["There is no line of every site alone: site 'west': a run may take 10 steps here",
                                       "There are no lines of models that need all rows in one place: the rows stay at the sites."]
    assert (done.bundle / "model.safetensors").exists()


@pytest.mark.slow
def test_a_fit_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    tree, reached = sections(tmp_path), asked(tmp_path, "cut off")

    def cut(what: str, done: float, number: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tree, "accuracy", tmp_path / "fit", replace(QUICK, jobs=None), tell=cut, reached=reached)
    made = (tmp_path / "fit/trials.jsonl").read_text().splitlines()
    done = fit(tree, "accuracy", tmp_path / "fit", replace(QUICK, jobs=2), reached=reached)
    assert (tmp_path / "fit/trials.jsonl").read_text().splitlines()[: len(made)] == made
    assert (done.bundle / "model.safetensors").exists()


def test_sites_are_asked_for_everything_before_anything_is_trained(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    for goal, own in (("auc", "auc"), ("fair", "fair"), ("worst_site", "group_dro"), ("personal", "maml")):
        with pytest.raises(Refused) as error:
            fit(sections(tmp_path), goal, tmp_path / "fit", GROUPED, reached=asked(tmp_path, goal, objectives=("cross_entropy",)))
        assert f"A fit for {goal} needs, under [may] at every site, algorithms = [\"F" in str(error.value)
        assert f"\"{own}\"" in str(error.value).partition("objectives = [")[2]
        assert str(error.value).endswith("others = [\"evaluation\", \"set-up\"]")
        assert not (tmp_path / "fit/trials.jsonl").exists()


@pytest.mark.parametrize("goal", ["fair", "worst_site", "personal", "ap"])
def test_made_up_rows_tell_what_methods_send(goal: str, tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    options = replace(GROUPED, batch=32)
    real = ready(sections(tmp_path), goal, tmp_path / "real", options, asked(tmp_path, goal))
    known = ready(hospitals.simulated(tmp_path, sections(tmp_path)), goal, tmp_path / "simulated", options)
    made_up = stand_in(real.rows, "sex")
    for method in known.methods:
        if method.trains:
            tree = tree_of(known.base, method, known.setting, 0.1, 0)
            found = assemble(parse(tree), made_up).forecast()
            assert found is not None
            assert found == assemble(parse(tree), known.rows).forecast(), method.label
    assert not (tmp_path / "real").exists()
