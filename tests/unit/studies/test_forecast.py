"""What a run says it will send is what the ledger counts in the end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from running import changed, command, toml

from rookery import Algorithm, Federation, FedNest, LFedNest, SimFBO
from rookery.problems import testproblems as known
from rookery.studies import algorithms, parse
from rookery.studies.build import build
from rookery.studies.communication import communication, small_problems
from rookery.studies.forecast import forecast

DRO: dict[str, Any] = {"objective": {"name": "kl_dro"}, "algorithm": {"name": "FedDRO"}}
AP: dict[str, Any] = {"data": {"positive": [1]}, "objective": {"name": "ap_surrogate"},
                      "algorithm": {"batch": ..., "outer": 4, "inner": 8}}


@pytest.mark.parametrize("sections", [
    {}, {"federation": {"clients_per_round": 2}}, {"algorithm": {"name": "SCAFFOLD"}, "federation": {"clients_per_round": 3}},
    {"algorithm": {"local_steps": ..., "epochs": 1}}, {"algorithm": {"local_steps": [1, 2, 3, 4]}}, {"warm_up": {"rounds": 2}},
    {"run": {"rounds": 0}}, {"run": {"rounds": 1}}, {"algorithm": {"name": "FedOpt"}}, {"algorithm": {"name": "FedLin"}}, DRO,
    {**DRO, "federation": {"clients_per_round": 2}, "warm_up": {"rounds": 1}}, {**DRO, "objective": {"name": "group_dro"}},
    {**DRO, "algorithm": {"name": "GCIVR", "local_steps": ..., "period": 3}}, {**AP, "algorithm": {**AP["algorithm"], "name": "FCSG"}},
    {**AP, "algorithm": {**AP["algorithm"], "name": "Acc-FCSG-M", "beta": 0.3}}], ids=str)
def test_a_run_sends_what_was_foretold(sections: dict[str, Any]) -> None:
    job = build(parse(changed(**{**sections, "federation": {"engine": "loop", **sections.get("federation", {})}})))
    before = torch.get_rng_state()
    coming = job.forecast()
    assert torch.equal(torch.get_rng_state(), before)
    assert not job.fed.ledger["setup"].exchanges
    job.run(None, "x")
    account = job.fed.ledger["train"]
    assert coming is not None
    assert (coming.exchanges, coming.up, coming.down, coming.how) == (account.exchanges, account.bytes_up, account.bytes_down, "")


@pytest.mark.parametrize("title", sorted(algorithms()))
def test_every_algorithm_sends_at_most_what_was_foretold(title: str) -> None:
    cls = algorithms()[title]
    algorithm = communication(cls).algorithm
    for problem in small_problems(cls.solves):
        fed = Federation(problem.problem, problem.data, engine="loop")
        start = (problem.x0, problem.y0) if "y" in algorithm.init.__code__.co_varnames else (problem.x0,)  # type: ignore[attr-defined]
        coming = forecast(algorithm, fed, lambda _, start=start: start, rounds=5)
        if coming is None:
            continue
        state = algorithm.init(fed, *start)
        for _ in range(5):
            state = algorithm.round(fed, state)
        account = fed.ledger["train"]
        found, told = (account.exchanges, account.bytes_up, account.bytes_down), (coming.exchanges, coming.up, coming.down)
        assert found == told if not coming.how else all(a <= b for a, b in zip(found, told, strict=True))
        return
    pytest.fail("no problem fits")


@pytest.mark.parametrize(("algorithm", "how"), [
    (FedNest(0.1, 0.1, terms=5), "at most "), (FedNest(0.1, 0.1, terms=5, inverse_solver="neumann"), ""), (LFedNest(0.1, 0.1), "at most ")],
    ids=["random", "deterministic", "LFedNest"])
def test_a_number_of_terms_that_is_drawn_is_the_largest(algorithm: Algorithm, how: str) -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data, engine="loop")
    coming = forecast(algorithm, fed, lambda _: (k.x0, k.y0), rounds=4)
    assert coming is not None
    assert coming.how == how
    partial = Federation(k.problem, k.data, engine="loop", clients_per_round=2)
    coming = forecast(FedNest(0.1, 0.1), partial, lambda _: (k.x0, k.y0), rounds=4)
    assert coming is not None
    assert coming.how == "about "  # who knows x already depends on the cohorts
    assert forecast(SimFBO(0.1), partial, lambda _: (k.x0,), rounds=4) is None


def test_the_line_before_a_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text(toml(changed()))
    assert command(monkeypatch, "run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == "to come: 4 exchanges, 0.08 MB in all; in a round a client sends 2.6 kB and receives 2.6 kB"
    assert any(line.startswith("4 exchanges, 0.08 MB, ") for line in printed)
