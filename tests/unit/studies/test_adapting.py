"""Models adapted to rows of one's own: at the sites of a run, and from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rookery import Model
from rookery.data.tables.encoder import Number
from rookery.errors import CheckpointError, ConfigError, DataError, RookeryError
from rookery.models import mlp
from rookery.studies import parse
from rookery.studies.adapting import adapt, trained
from rookery.studies.build import build

DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "test_at": "sites"}, "sites": {"how": "shards", "number": 5, "per_site": 2},
    "model": {"name": "mlp", "hidden": [6]}, "algorithm": {"name": "FedAvg", "lr": 0.2, "batch": 16, "local_steps": 3},
    "personal": {"steps": 2, "lr": 0.3, "alone_steps": 4, "alone_lr": 0.2, "alone_batch": None}, "run": {"rounds": 2, "every": 1}}


def steps(net: nn.Module, rows: dict[str, Tensor], number: int, lr: float) -> nn.Module:
    """Plain gradient steps of a module on all rows, as anybody writes them."""
    for _ in range(number):
        loss = nn.functional.cross_entropy(net(rows["inputs"]), rows["labels"])
        with torch.no_grad():
            for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
                p.sub_(lr * g)
    return net


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_sites_adapt_and_train_alone_as_plain_modules_do(engine: str) -> None:
    job = build(parse(DIGITS | {"federation": {"engine": engine}}))
    x = job.initial_state().x + 0.01
    found, table = job.scores(job.initial_state()._replace(x=x)), job.sites(x)
    held, right, rows = job.fed.data.split("test"), 0, 0
    assert held is not None
    for k, name in enumerate(job.fed.data.names):
        own, test = job.fed.data.views(k), held.part(held.names.index(name)).fields
        models = {"": job.model.module(x), "adapted ": steps(job.model.module(x), own, 2, 0.3),
                  "alone ": steps(job.model.module(job.given.vector), own, 4, 0.2)}
        for title, net in models.items():
            hits = int((net(test["inputs"]).argmax(1) == test["labels"]).sum())
            assert table[k][f"{title}accuracy"] == pytest.approx(hits / len(test["labels"]))
            assert table[k][f"{title}loss"] == pytest.approx(
                float(nn.functional.cross_entropy(net(test["inputs"]), test["labels"]).detach()), rel=1e-4)
            right += hits * (title == "adapted ")
        rows += len(test["labels"])
    assert found["test adapted accuracy"] == pytest.approx(right / rows)
    assert {"adapted accuracy", "adapted loss"} <= set(job.metrics)
    assert job.fed.ledger["evaluation"].calls["gradient"] > 0  # what sites do to adapt is on the run's account
    assert job.fed.ledger["train"].calls["gradient"] == 0


def test_minibatches_of_an_adaptation_are_the_same_at_every_evaluation() -> None:
    job = build(parse(DIGITS | {"personal": {"steps": 3, "lr": 0.3, "batch": 4}}))
    state = job.initial_state()
    assert job.scores(state) == job.scores(state)


def test_an_objective_that_learns_a_start_says_how_sites_adapt() -> None:
    config = DIGITS | {"objective": {"name": "maml", "inner_lr": 0.07, "query": 3},
                       "algorithm": {"name": "FCSG", "lr": 0.1, "outer": 1, "inner": 4}}
    own = parse({key: value for key, value in config.items() if key != "personal"}).adaptation
    assert own is not None
    assert (own.steps, own.lr) == (3, 0.07)
    said = parse(config).adaptation
    assert said is not None
    assert (said.steps, said.lr) == (2, 0.3)
    assert parse(config | {"personal": {"steps": 0}}).adaptation is None
    assert parse({key: value for key, value in DIGITS.items() if key != "personal"}).adaptation is None


@pytest.mark.parametrize(("section", "said"), [
    ({"lr": 0.1}, "write steps = 3 beside"), ({"steps": 2, "lr": -1.0}, "positive size"), ({"alone_lr": 0.0}, "positive size"),
    ({"steps": -1}, "at least none")])
def test_the_section_is_checked(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(DIGITS | {"personal": section})


def test_a_step_that_is_too_large_is_blamed() -> None:
    job = build(parse(DIGITS | {"personal": {"steps": 3, "lr": 1e30}}))
    with pytest.raises(RookeryError, match=r"sites that adapt the model by 3 steps of 1e\+30 .* lower personal\.lr"):
        job.scores(job.initial_state())


# from a folder

@pytest.fixture
def ended(tmp_path: Path) -> Path:
    build(parse(DIGITS)).run(tmp_path / "run", "run")
    return tmp_path / "run"


def few(path: Path, job: Any, rows: slice) -> dict[str, Tensor]:
    fields = {name: job.test.fields[name][rows] for name in ("inputs", "labels")}
    np.savez(path, inputs=fields["inputs"].numpy(), labels=fields["labels"].numpy())
    return fields


def test_the_adapted_model_is_that_of_plain_steps(ended: Path, tmp_path: Path) -> None:
    job, x = trained(ended)
    rows, other = few(tmp_path / "few.npz", job, slice(0, 12)), few(tmp_path / "test.npz", job, slice(12, 40))
    done = adapt(ended, tmp_path / "few.npz", tmp_path / "out", steps=4, lr=0.5, test=tmp_path / "test.npz")
    expected = steps(job.model.module(x), rows, 4, 0.5)
    weights = load_file(tmp_path / "out" / "model.safetensors")
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        hits = (expected(other["inputs"]).argmax(1) == other["labels"]).double().mean()
    assert done.scores["test, after"]["accuracy"] == pytest.approx(float(hits))
    about = json.loads((tmp_path / "out" / "about.json").read_text())
    assert (about["rows"], about["steps"], about["lr"], about["model"]["hidden"]) == (12, 4, 0.5, [6])
    # what was written is all that is needed to use it
    net = nn.Sequential(nn.Flatten(), *mlp(64, *about["model"]["hidden"], len(about["classes"])))
    net.load_state_dict(weights)
    torch.testing.assert_close(net(other["inputs"]), expected(other["inputs"]), rtol=1e-4, atol=1e-5)
    with pytest.raises(CheckpointError, match="holds an adapted model already"):
        adapt(ended, tmp_path / "few.npz", tmp_path / "out")


def test_a_run_says_how_its_model_is_adapted(ended: Path, tmp_path: Path) -> None:
    few(tmp_path / "few.npz", trained(ended)[0], slice(0, 5))
    done = adapt(ended, tmp_path / "few.npz", tmp_path / "out")
    assert (done.how.steps, done.how.lr, done.rows) == (2, 0.3, 5)


def test_rows_of_a_table_are_encoded_as_those_of_the_run(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    ages, sexes = r.normal(3, 7, 80), r.choice(["f", "m"], 80)
    lines = [f"{a:.2f},{s},{'yes' if a + (s == 'm') > 0.3 else 'no'}" for a, s in zip(ages, sexes, strict=True)]
    (tmp_path / "all.csv").write_text("\n".join(["age,sex,sick", *lines]))
    tree = DIGITS | {"data": {"csv": str(tmp_path / "all.csv"), "label": "sick", "positive": ["yes"]}, "sites": {"how": "iid", "number": 2},
                     "personal": {}}
    job = build(parse(tree))
    job.run(tmp_path / "run", "run")
    # other columns, in another order, with a category that no training row has
    (tmp_path / "few.csv").write_text("sick,sex,note,age\nno,f,x,1.5\nyes,other,y,9\n")
    adapt(tmp_path / "run", tmp_path / "few.csv", tmp_path / "out", steps=1, lr=1.0)
    assert job.test.encoder is not None
    age = job.test.encoder.columns[0]
    assert isinstance(age, Number)
    mean, deviation = age.mean, age.scale
    rows = {"inputs": torch.tensor([[(1.5 - mean) / deviation, 1, 0], [(9 - mean) / deviation, 0, 0]], dtype=torch.float32),
            "labels": torch.tensor([0, 1])}
    _, x = trained(tmp_path / "run")
    expected = steps(Model(job.model.net).module(x), rows, 1, 1.0)
    weights = load_file(tmp_path / "out" / "model.safetensors")
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-6)
    for text, said in (("sick,sex,age\nmaybe,f,1\n", r"classes that the model knows \(no, yes\), but line 2 of bad.csv has 'maybe'"),
                       ("sick,sex\nno,f\n", "no column 'age'"),
                       ("sick,sex,age\nno,f,old\n", "column 'age' of bad.csv must hold finite numbers"),
                       ("sick,sex,age\n,f,1\n", "needs a value in the label column")):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(DataError, match=said):
            adapt(tmp_path / "run", tmp_path / "bad.csv", tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(("inputs", "labels", "said"), [
    (np.zeros((2, 1, 9, 9), dtype=np.float32), [1, 2], r"must have the shape of those the model was trained on, \(1, 8, 8\)"),
    (np.zeros((2, 1, 8, 8), dtype=np.float32), [1, 77], "row 1 of bad.npz has '77'")])
def test_rows_that_do_not_fit_are_refused(ended: Path, tmp_path: Path, inputs: Any, labels: list[int], said: str) -> None:
    np.savez(tmp_path / "bad.npz", inputs=inputs, labels=labels)
    with pytest.raises(DataError, match=said):
        adapt(ended, tmp_path / "bad.npz", tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_folders_without_a_run_are_refused(ended: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="must be the folder of a run"):
        trained(tmp_path / "nothing")
    (ended / "state.ckpt").unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        trained(ended)
    (tmp_path / "table.csv").write_text("a,label\n1,2\n")
    build(parse(DIGITS)).run(tmp_path / "other", "other")
    with pytest.raises(DataError, match="were no table of columns"):
        adapt(tmp_path / "other", tmp_path / "table.csv", tmp_path / "never")
