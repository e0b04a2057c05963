"""A fit in words, made by a server elsewhere: the bundle is that of a fit here, and an aborted one goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import hospitals
import pytest

from rookery.errors import ConfigError, EngineError
from rookery.fitting import Options, fit
from rookery.fitting.serving import MADE, fit_words, fitted, serve
from rookery.studies.federating import Meeting

OBJECTIVES = ("cross_entropy", "balanced_cross_entropy", "kl_dro", "cvar_dro", "last_layer")


def test_a_fit_in_words_comes_to_the_bundle_of_a_fit_here_and_goes_on_when_it_was_aborted(tmp_path: Path) -> None:
    hospitals.write(tmp_path)
    (tmp_path / "federation.toml").write_text("[server]\nseconds = 20\n[sites]\n" + "\n".join(f'{name} = "x"' for name in hospitals.NAMES))
    tree = {name: table for name, table in hospitals.description(tmp_path).items() if name not in ("algorithm", "run")}
    options = Options(rounds=2, local_steps=2, batch=16, jobs=1, pool=False)
    hosts = {name: hospitals.host(tmp_path, name, hospitals.rules(objectives=OBJECTIVES)) for name in hospitals.NAMES}
    reached = hospitals.reached(tmp_path, "here", **hosts)
    here = fit(tree, "accuracy", tmp_path / "here", options, reached=reached)
    words = json.loads(json.dumps(fit_words(tree, "accuracy", options, Meeting.read(tmp_path / "federation.toml"))))
    folder = tmp_path / "run-elsewhere"
    folder.mkdir()
    with pytest.raises(EngineError, match="the job was aborted"):
        serve(reached.transport, reached.sites, words, folder, lambda: True)
    with pytest.raises(ConfigError, match=r"fit\.json of the fit did not come back, or is not whole"):
        fitted(folder / MADE)
    made = (folder / MADE / "trials.jsonl").read_text()
    serve(reached.transport, reached.sites, words, folder, lambda: False)
    assert (folder / MADE / "trials.jsonl").read_text().startswith(made)
    assert json.loads((folder / "federation.json").read_text()) == {"run": "run-elsewhere"}
    assert set(json.loads((folder / "progress.json").read_text())) == {"what", "done", "of"}
    there = fitted(folder / MADE)
    for file in ("model.safetensors", "encoder.json"):
        assert (there.bundle / file).read_bytes() == (here.bundle / file).read_bytes()
    assert there.told["rows"] == here.told["rows"]
    assert [run.name for run in there.runs[1:]] == [run.name for run in here.runs[1:]]
    with pytest.raises(ConfigError, match="holds a fit of other rows, another goal or other options"):
        serve(reached.transport, reached.sites, words | {"options": vars(replace(options, rounds=3))}, folder, lambda: False)
