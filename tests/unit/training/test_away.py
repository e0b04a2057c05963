"""Sites that do not answer, come back, or come back without their state: a run goes on, or says who is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quiet_sites import network, quiet, restart

from rookery import SCAFFOLD, FedAvg, FedDRO, Federation
from rookery.errors import Away, StateLost
from rookery.problems import testproblems as known
from rookery.testing.faults import FaultyWire
from rookery.training import Run, run

RUNS = pytest.mark.parametrize(("algorithm", "make"), [
    (SCAFFOLD(0.1, 2, 2), known.minimization), (FedDRO(0.1, 0.3, 2, 2), known.compositional), (FedAvg(0.1, 2, 2), known.minimization),
], ids=["SCAFFOLD", "FedDRO", "FedAvg"])


@RUNS
@pytest.mark.parametrize("clients_per_round", [None, 3])
def test_rounds_without_a_site_are_those_of_a_simulation_that_lacks_it(algorithm: Any, make: Any, clients_per_round: int | None) -> None:
    k, wire = make(), quiet()
    fed = Federation(k.problem, k.data, engine=wire, quorum=2, clients_per_round=clients_per_round, weights="samples")
    other = Federation(k.problem, k.data, engine="loop", clients_per_round=clients_per_round, weights="samples")
    state, expected = algorithm.init(fed, k.x0), algorithm.init(other, k.x0)
    for down in (set(), {"site-1"}, {"site-1", "site-2"}, {"site-2"}, set()):
        network(wire).down = down
        state = run(algorithm, fed, state, 2).state
        for _ in range(2):
            other.away = down if clients_per_round is None else fed.away  # of a small cohort it may not be known yet that a site is away
            expected = algorithm.round(other, expected)
        if clients_per_round is None:
            assert torch.equal(state.x, expected.x)
            assert fed.away == down
    assert torch.isfinite(state.x).all()


def test_without_a_quorum_the_site_is_named() -> None:
    k, wire = known.minimization(), quiet(tries=2)
    algorithm = SCAFFOLD(0.1, 2, 2)
    for quorum in (None, len(k.data.names)):
        fed = Federation(k.problem, k.data, engine=(wire := quiet(tries=2)), quorum=quorum)
        state = algorithm.init(fed, k.x0)
        network(wire).down = {"site-2"}
        with pytest.raises(Away, match=r"client 'site-2': no answer in 60 s, 2 times over"):
            run(algorithm, fed, state, 2)
        with pytest.raises(Away, match="site-2"):  # and does not go on without it when it is tried again
            run(algorithm, fed, state, 2)
        network(wire).down = set()
        assert run(algorithm, fed, state, 2).reason == "rounds"


def test_a_site_with_several_clients_takes_them_all_with_it() -> None:
    k = known.minimization()
    wire = FaultyWire(share=0.0, tries=1)
    fed = Federation(k.problem, k.data, engine=wire, quorum=2)
    algorithm = FedAvg(0.1, 2, 2)
    state = algorithm.init(fed, k.x0)
    network(wire).down = {wire.sites[0].name}
    assert run(algorithm, fed, state, 1).reason == "rounds"
    assert fed.away == set(k.data.names[:2])


def test_a_restarted_site_whose_state_nobody_needs_goes_on() -> None:
    k, wire = known.minimization(), quiet()
    algorithm = FedAvg(0.1, 2, 2)
    fed, other = Federation(k.problem, k.data, engine=wire), Federation(k.problem, k.data, engine="loop")
    state = run(algorithm, fed, algorithm.init(fed, k.x0), 2).state
    restart(wire, 1)
    state = run(algorithm, fed, state, 3).state
    assert torch.equal(state.x, run(algorithm, other, algorithm.init(other, k.x0), 5).state.x)


def test_a_restarted_site_takes_its_state_from_the_checkpoint(tmp_path: Path) -> None:
    k, wire = known.minimization(), quiet(tmp_path / "sites")
    algorithm = SCAFFOLD(0.1, 2, 2)
    fed, other = Federation(k.problem, k.data, engine=wire), Federation(k.problem, k.data, engine="loop")
    made = []

    def progress(rounds: int, of: int) -> None:
        made.append(rounds)
        if made.count(5) == 1 and rounds == 5:
            restart(wire, 1)

    found = run(algorithm, fed, algorithm.init(fed, k.x0), 9, folder=tmp_path / "run", save_every=3, on_progress=progress)
    assert made == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]
    assert torch.equal(found.state.x, run(algorithm, other, algorithm.init(other, k.x0), 9).state.x)


def test_a_restarted_site_without_a_checkpoint_says_what_is_lost() -> None:
    k, wire = known.minimization(), quiet()
    algorithm = SCAFFOLD(0.1, 2, 2)
    fed = Federation(k.problem, k.data, engine=wire)
    state = run(algorithm, fed, algorithm.init(fed, k.x0), 2).state
    restart(wire, 1)
    with pytest.raises(StateLost, match=r"^site 'site-1' has come back without 1 of the values that the run counts on$"):
        run(algorithm, fed, state, 1)


def test_a_restarted_site_gets_the_constants_of_its_problem_again() -> None:
    from recorded_frames import prepared, rows

    x = torch.ones(3, dtype=torch.float64)
    wire, algorithm = quiet(), FedAvg(0.1, 2, 2)
    fed, other = Federation(prepared(), rows(), engine=wire), Federation(prepared(), rows(), engine="loop")
    for each in (fed, other):
        each.prepare(x)
    state = run(algorithm, fed, algorithm.init(fed, x), 1).state
    restart(wire, 2)
    state = run(algorithm, fed, state, 1).state
    assert torch.equal(state.x, run(algorithm, other, algorithm.init(other, x), 2).state.x)


def test_sites_keep_the_last_checkpoint_only(tmp_path: Path) -> None:
    k, wire = known.minimization(), quiet(tmp_path / "sites")
    algorithm = SCAFFOLD(0.1, 2, 2)
    fed = Federation(k.problem, k.data, engine=wire)
    run(algorithm, fed, algorithm.init(fed, k.x0), 9, folder=tmp_path / "run", save_every=1)
    names = len(k.data.names)
    assert len(list((tmp_path / "sites").iterdir())) <= 2 * names  # the one before goes with the next frame
    assert names <= len(list((tmp_path / "sites").iterdir()))


@pytest.mark.parametrize("quorum", [None, 2])
def test_a_site_that_is_gone_when_the_run_is_saved(tmp_path: Path, quorum: int | None) -> None:
    """It is missed as in a round: the run goes on without it under a quorum, and else the checkpoint before stays."""
    k, wire = known.minimization(), quiet(tmp_path / "sites")
    algorithm = SCAFFOLD(0.1, 2, 2)
    fed = Federation(k.problem, k.data, engine=wire, quorum=quorum)

    missed: list[int] = []

    def progress(rounds: int, of: int) -> None:
        network(wire).down = {"site-1"} if rounds == 4 and not missed else set()
        missed.extend([4] if rounds == 4 else [])

    def go() -> Run:
        return run(algorithm, fed, algorithm.init(fed, k.x0), 6, folder=tmp_path / "run", save_every=2, on_progress=progress, resume=True)

    if quorum is None:
        with pytest.raises(Away, match="site-1"):
            go()
        network(wire).down = set()
    found = go()
    assert found.rounds == 6
    other = Federation(k.problem, k.data, engine="loop")
    expected = algorithm.init(other, k.x0)
    for number in range(6):
        other.away = {"site-1"} if quorum is not None and number == 4 else set()
        expected = algorithm.round(other, expected)
    assert torch.equal(found.state.x, expected.x)


@pytest.mark.parametrize("when", [5, 6])
def test_a_site_that_is_restarted_before_an_evaluation_or_a_save(tmp_path: Path, when: int) -> None:
    k, wire = known.minimization(), quiet(tmp_path / "sites")
    algorithm = SCAFFOLD(0.1, 2, 2)
    fed, other = Federation(k.problem, k.data, engine=wire), Federation(k.problem, k.data, engine="loop")
    restarted: list[int] = []

    def progress(rounds: int, of: int) -> None:
        if rounds == when and not restarted:
            restarted.append(rounds)
            restart(wire, 1)

    def evaluate(state: Any) -> dict[str, float]:
        return {"sum": float(fed.sum(fed.map(FedAvg(0.1, 2, 2).step, fed.broadcast(state.x), 0.0)).sum())}

    found = run(algorithm, fed, algorithm.init(fed, k.x0), 9, evaluate if when == 5 else None, 5, folder=tmp_path / "run", save_every=3,
                on_progress=progress)
    assert restarted
    assert torch.equal(found.state.x, run(algorithm, other, algorithm.init(other, k.x0), 9).state.x)
    assert [row["round"] for row in found.history] == ([0, 5, 9] if when == 5 else [])


def test_an_evaluation_is_of_those_who_are_there() -> None:
    k, wire = known.minimization(), quiet()
    algorithm = FedAvg(0.1, 2, 2)
    fed = Federation(k.problem, k.data, engine=wire, quorum=2)
    network(wire).down = {"site-1"}
    seen = []

    def evaluate(state: Any) -> dict[str, float]:
        seen.append(fed.present.names)
        return {"sum": float(fed.present.sum(fed.present.map(algorithm.step, fed.broadcast(state.x), 0.0)).sum())}

    found = run(algorithm, fed, algorithm.init(fed, k.x0), 1, evaluate)
    assert [len(row) for row in found.history]
    assert len(seen[-1]) == len(k.data.names) - 1
