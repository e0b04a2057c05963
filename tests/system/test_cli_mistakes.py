"""Likely mistakes in a description, each answered by a sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from running import GOOD, changed, command, toml

from rookery import RookeryError
from rookery.errors import ConfigError
from rookery.studies import parse, read
from rookery.studies.build import build

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown section": ({"algoritm": {}}, r"no section \[algoritm\]; did you mean 'algorithm'"),
    "section as a value": ({"run": 3}, r"\[run\] is a section of its own"),
    "no data": ({"data": None}, r"needs a section \[data\]"),
    "no algorithm": ({"algorithm": None}, r"needs a section \[algorithm\]"),
    "unknown key": (changed(run={"round": 3}), r"\[run\] has no entry 'round'; did you mean 'rounds'"),
    "key of another section": (changed(run={"lr": 0.1}), r"\[run\] has no entry 'lr'"),
    "unknown algorithm": (changed(algorithm={"name": "Scafold"}), r"no algorithm 'Scafold'; did you mean 'SCAFFOLD'"),
    "algorithm without a name": (changed(algorithm={"name": ...}), r"\[algorithm\] needs name"),
    "algorithm without lr": (changed(algorithm={"lr": ...}), r"\[algorithm\] needs lr"),
    "text for a number": (changed(algorithm={"lr": "fast"}), r"algorithm.lr must be a number"),
    "fraction for a whole number": (changed(algorithm={"batch": 2.5}), r"algorithm.batch must be a whole number"),
    "true for a number": (changed(run={"rounds": True}), r"run.rounds must be a whole number"),
    "number for a text": (changed(data={"name": 3}), r"data.name must be a text"),
    "negative lr": (changed(algorithm={"lr": -0.1}), r"lr must be positive; got -0.1"),
    "zero batch": (changed(algorithm={"batch": 0}), r"batch must be positive"),
    "zero local steps": (changed(algorithm={"local_steps": 0}), r"local_steps must be positive"),
    "steps and epochs": (changed(algorithm={"epochs": 2}), r"both epochs and local_steps"),
    "hyper-parameter of another algorithm": (changed(algorithm={"beta": 0.3}), r"\[algorithm\] has no entry 'beta'; It has lr"),
    "unknown engine": (changed(federation={"engine": "lop"}), r"federation.engine is one of .*did you mean 'loop'"),
    "unknown weights": (changed(federation={"weights": "rows"}), r"federation.weights is one of equal, samples"),
    "unknown partition": (changed(sites={"how": "dirichelet"}), r"sites.how is one of .*did you mean 'dirichlet'"),
    "unknown model": (changed(model={"name": "resnet18"}), r"model.name is one of .*did you mean 'resnet20'"),
    "odd hidden layers": (changed(model={"hidden": [8, "x"]}), r"model.hidden must be a whole number"),
    "unknown objective": (changed(objective={"name": "kldro"}), r"objective.name is one of .*module:name; did you mean 'kl_dro'"),
    "unknown data": (changed(data={"name": "digit"}), r"no data set 'digit'; did you mean 'digits'"),
    "more sites than rows": (changed(sites={"number": 5000}), r"5000 sites"),
    "zero sites": (changed(sites={"number": 0}), r"at least one site"),
    "cohort larger than the sites": (changed(federation={"clients_per_round": 9}), r"clients_per_round is 9, but there are 4 sites"),
    "cohort of nobody": (changed(federation={"clients_per_round": 0}), r"clients_per_round lies between 1 and"),
    "algorithm of another kind": (changed(objective={"name": "kl_dro"}), r"FedAvg solves Minimization.*Algorithms that fit: .*FedDRO"),
    "convolutions on a table": (changed(data={"name": "wine"}, model={"name": "small_cnn"}),
                                r"takes images; these rows have the shape \(13,\)"),
    "negative lam": (changed(objective={"name": "kl_dro", "lam": -1.0}), r"lam must be positive"),
    "weight decay with DRO": (changed(objective={"name": "kl_dro", "weight_decay": 0.1}),
                              r"\[objective\] has no entry 'weight_decay'; It has lam"),
    "negative seed": (changed(federation={"seed": -1}), r"seed"),
    "two sources of data": (changed(data={"csv": "a.csv"}), r"give one of name, table, npz and images; got name, csv"),
    "no source of data": (changed(data={"name": ...}), r"give one of name, table, npz and images; got none"),
    "csv without a label": (changed(data={"name": ..., "csv": "a.csv"}), r"csv needs label"),
    "no such csv": (changed(data={"name": ..., "csv": "missing.csv", "label": "y"}), r"missing.csv"),
    "column of a data set": (changed(data={"site": "hospital"}), r"site names a column .* goes with table or npz"),
    "size of a table": (changed(data={"size": 32}), r"size is the height and width"),
    "thinned twice": (changed(data={"positive": [1], "keep_positives": 0.1, "positive_share": 0.1}), r"keep one of them"),
    "labels not binary": (changed(data={"keep_positives": 0.1}), r"labels must be 0 and 1.*Table.binary"),
    "unknown positive class": (changed(data={"positive": ["ten"]}), r"'ten' is not a class"),
    "minority without a share": (changed(data={"minority": [1]}), r"minority_keep = share go together"),
    "unknown minority": (changed(data={"minority": ["x"], "minority_keep": 0.1}), r"'x' is not a class of 'digits'; the classes are 0, 1"),
    "positive share out of range": (changed(data={"positive": [1], "positive_share": 0.9}), r"can only be dropped"),
    "sites by a column that is not there": (changed(sites={"how": "column", "column": "ward"}), r"sites.column is 'ward'"),
    "AP of ten classes": (changed(objective={"name": "ap_surrogate"}), r"needs two classes, there are 10.*positive"),
    "groups that are not there": (changed(objective={"name": "group_dro", "field": "sex"}), r"objective.field is 'sex', .*keep = "),
    "groups by name": (changed(objective={"name": "group_dro", "groups": "sex"}), r"no entry 'groups': .* write field = 'sex'"),
    "fairness without a column": (changed(data={"name": "breast-cancer"}, objective={"name": "fair"}), r"\[objective\] needs field"),
    "no such reduction": (changed(objective={"name": "kl_dro", "reduce": "bilevl"}), r"reduce is one of .*did you mean 'bilevel'"),
    "a reduction of another kind": (changed(objective={"reduce": "compositional"}), r"is for conditional objectives, .*: leave it out"),
    "bilevel without an inner problem": (changed(data={"name": "breast-cancer"}, objective={"name": "ap_surrogate", "reduce": "bilevel"}),
                                         r"Conditional does not embed in Bilevel"),
    "minimax for a bilevel method": (changed(objective={"name": "group_weights"}, algorithm={"name": "FedNest"}),
                                     r"FedNest solves Bilevel problems, and group_weights is a Minimax: write reduce = \"bilevel\""),
    "conditional for a local composition": (
        changed(data={"name": "breast-cancer"}, objective={"name": "ap_surrogate"}, algorithm={"name": "ComFedL"}),
        r"ap_surrogate is a Conditional: write reduce = \"compositional\""),
    "one metric without its list": (changed(run={"metrics": "mine:f1"}), r"run.metrics must be a list of texts in quotes; it was given"),
    "a sampler spelt wrongly": (changed(objective={"samplng": "Shuffled"}), r"no entry 'samplng'; did you mean 'sampling'"),
    "no share of validation rows": (changed(objective={"name": "loss_tuning", "validation_share": 1.5}), r"between 0 and 1; got 1.5"),
    "a batch of one with two kinds of rows": (changed(objective={"name": "loss_tuning"}, algorithm={"name": "FedNest", "batch": 1}),
                                              r"at least 2; algorithm.batch is 1"),
    "features of a net of one layer": (changed(objective={"name": "hyper_representation"}, algorithm={"name": "FedNest"}),
                                       r"this net has one layer: write \[model\] name = \"mlp\""),
    "a model where there is none to choose": (changed(data={"name": "breast-cancer"}, objective={"name": "robust_regression"}),
                                              r"robust_regression has a function of its own.*leave the section \[model\] out"),
    "numbers of pictures": (changed(data={"positive": [1]}, objective={"name": "robust_regression"}), r"these have the shape \(1, 8, 8\)"),
    "unknown sampler": (changed(objective={"sampling": "Shufled"}), r"objective.sampling is one of .*did you mean 'Shuffled'"),
    "a sampler without its numbers": (changed(objective={"sampling": {"name": "Stratified", "label": "labels"}}),
                                      r"\[objective.sampling\] needs positives"),
    "a sampler of another form": (changed(objective={"sampling": 3}), r"objective.sampling is a sampler's name, or a table"),
    "a sampler that a bilevel objective cannot draw with": (
        changed(objective={"name": "loss_tuning", "sampling": "Shuffled"}, algorithm={"name": "FedNest"}), r"its kinds of rows apart"),
    "one machine with many sites": (changed(objective={"name": "kl_dro"}, algorithm={"name": "SCGD"}), r"SCGD runs on one machine"),
    "unknown output": (changed(run={"output": "mean"}), r"run.output is one of last, uniform"),
    "share of everything": (changed(data={"validation": 1.0}), r"share|validation"),
}


@pytest.mark.parametrize("label", MISTAKES)
def test_a_mistake_is_answered_by_a_sentence(label: str) -> None:
    tree, words = MISTAKES[label]
    tree = {k: v for k, v in {**GOOD, **tree}.items() if v is not None}
    with pytest.raises(RookeryError, match=words) as caught:
        build(parse(tree)).initial_state()
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(("content", "words"), [("[data\nname = 1", "is not TOML"), (None, "there is no file"), ("\xff", "is not TOML")])
def test_a_file_that_cannot_be_read(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=words):
        read(path)


@pytest.mark.parametrize("override", ["rounds=3", "run.rounds", "=3"])
def test_an_override_of_another_form(override: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(toml(GOOD))
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        read(tmp_path / "run.toml", [override])


@pytest.mark.parametrize(("entry", "words"), [
    ({"device": "gpu"}, r"torch finds no device 'gpu' on this machine; write device='cpu'"),
    ({"device": "cuda:99"}, r"torch finds no device 'cuda:99'"), ({"device": 0}, r"federation.device must be a text"),
    ({"precision": "bf16"}, r"federation.precision is one of float32, bfloat16, float16; did you mean 'bfloat16'"),
    ({"precision": "half"}, r"federation.precision is one of float32")])
def test_a_device_or_precision_that_is_not_there(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(changed(federation=entry))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_fewer_digits_give_nearly_the_same_run(precision: str) -> None:
    runs = {}
    for word in ("float32", precision):
        job = build(parse(changed(federation={"precision": word, "device": "cpu"}, warm_up={"rounds": 1})))
        assert (job.fed.setting.precision is None) == (word == "float32")
        assert job.forecast() is not None
        runs[word] = job.run(None, "x").history[-1]
        assert job.given.vector.dtype == job.fed.data.fields["inputs"].dtype
    assert runs[precision]["test loss"] != runs["float32"]["test loss"]
    assert runs[precision]["test loss"] == pytest.approx(runs["float32"]["test loss"], rel=0.05)


@pytest.mark.parametrize(("arguments", "words"), [
    (["run", "."], "cannot be read"), (["run", "good.toml", "--out", "good.toml"], "good.toml"),
    (["report", "good.toml"], "good.toml"), (["compare", "good.toml", "--grid", "algorithm.lr="], "values to choose from"),
    (["compare", "good.toml", "--grid", "federation.seed=1,2"], "seeds are not chosen"),
    (["compare", "good.toml", "--tuning-seeds", "0"], "at least one tuning seed"),
    (["compare", "good.toml", "--grid", "algorithm.mu=0.1"], "good: .*no entry 'mu'"),
    (["run", "good.toml", "--set", "model.hidden=[-3]"], "at least one unit"), (["run", "good.toml", "--set", "run.rounds=-1"], "negative"),
    (["run", "good.toml", "--set", "federation.min_batch=0"], "min_batch must be at least 1"),
    (["run", "good.toml", "--set", "federation.weights=positives"], "needs two classes"),
    (["run", "good.toml", "--set", "data.long_tail=0.1", "--set", "data.minority=[1]", "--set", "data.minority_keep=0.1"],
     "keep one of them"),
    (["run", "flat.toml", "--set", "run.rounds=3"], r"\[run\] is a section of its own"), (["run", "one.toml"], "two classes at least"),
    (["run", "many.toml"], "different values")], ids=lambda v: " ".join(v[:4]) if isinstance(v, list) else None)
def test_more_mistakes_are_answered_by_a_sentence(arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.toml").write_text(toml(GOOD))
    Path("flat.toml").write_text("run = 3\n" + toml({k: v for k, v in GOOD.items() if k != "run"}))
    Path("one.csv").write_text("a,kind\n" + "\n".join(f"{i},same" for i in range(30)))
    Path("many.csv").write_text("a,kind\n" + "\n".join(f"{i},{i / 7:.3f}" for i in range(90)))
    for name in ("one", "many"):
        Path(f"{name}.toml").write_text(toml(changed(data={"name": ..., "csv": f"{name}.csv", "label": "kind"})))
    assert command(monkeypatch, *arguments) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert len(told.splitlines()) <= 2
    assert re.search(words, told.replace("\n", " ")), told
