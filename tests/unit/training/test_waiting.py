"""Sites where nobody listens for a while, and sites that come back without what they had made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quiet_sites import network, quiet, restart

from rookery import SCAFFOLD, FedAvg, Federation
from rookery.engines.transport import InProcess
from rookery.errors import Away, StateLost
from rookery.problems import testproblems as known
from rookery.training import Run, run


@pytest.mark.parametrize("killed", [False, True])
def test_a_site_that_missed_a_checkpoint_and_comes_back_without_its_state_stays_away(tmp_path: Path, killed: bool,
                                                                                     caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has its part: under a quorum the run goes on without it, in this process and where it is resumed in another one."""
    k = known.minimization()
    algorithm = SCAFFOLD(0.1, 2, 2)
    other = Federation(k.problem, k.data, engine="loop")
    expected = algorithm.init(other, k.x0)
    for number in range(8):
        other.away = {"site-1"} if number >= 3 else set()
        expected = algorithm.round(other, expected)

    def go(rounds: int, quorum: int = 2, resume: bool = False) -> tuple[Run, Federation[Any]]:
        wire = quiet(tmp_path / "sites")
        fed = Federation(k.problem, k.data, engine=wire, quorum=quorum)

        def progress(done: int, of: int) -> None:
            if not resume and done == 3:
                network(wire).down = {"site-1"}
            if not resume and done == 5:
                restart(wire, 1)
                network(wire).down = set()

        state = algorithm.init(fed, k.x0)
        return run(algorithm, fed, state, rounds, folder=tmp_path / "run", save_every=2, on_progress=progress, resume=resume), fed

    found, fed = go(4 if killed else 8)
    if killed:
        with pytest.raises(StateLost, match=r"was saved without site-1, and of . clients the quorum asks for ."):
            go(8, len(k.data.names), resume=True)
        found, fed = go(8, resume=True)
    assert fed.away == {"site-1"}
    assert found.rounds == 8
    assert torch.equal(found.state.x, expected.x)
    assert caplog.text.count("the run goes on without it") == 1 + killed


class Refusing(InProcess):
    """Nobody listens at sites for so many frames each."""

    def __init__(self, inner: Any, **refuses: int) -> None:
        self.inner, self.refuses = inner, {name.replace("_", "-"): number for name, number in refuses.items()}

    def exchange(self, frames: Any, seconds: float) -> Any:
        gone = [name for name in frames if self.refuses.get(name)]
        self.refuses |= {name: self.refuses[name] - 1 for name in gone}
        there = self.inner.exchange({name: frame for name, frame in frames.items() if name not in gone}, seconds)
        return {**there, **dict.fromkeys(gone, ConnectionError("unavailable: Connection refused"))}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that runs while somebody sleeps."""
    found = [0.0]
    monkeypatch.setattr("rookery.engines.remote.time.monotonic", lambda: found[0])
    monkeypatch.setattr("rookery.engines.remote.time.sleep", lambda seconds: found.__setitem__(0, found[0] + seconds))
    return found


def test_a_site_where_nobody_listens_is_waited_for_as_long_as_it_may_take_to_answer(now: list[float]) -> None:
    k = known.minimization()
    algorithm, other = FedAvg(0.1, 2, 2), Federation(k.problem, k.data, engine="loop")
    for refuses, waited in ((30, 14.0), (1000, 120.0)):
        fed = Federation(k.problem, k.data, engine=(wire := quiet(tries=2)))
        state = run(algorithm, fed, algorithm.init(fed, k.x0), 1).state
        wire.transport, now[0] = Refusing(wire.transport, site_1=refuses), 0.0
        if refuses == 1000:
            with pytest.raises(Away, match="client 'site-1': unavailable: Connection refused, 2 times over"):
                run(algorithm, fed, state, 1)
        else:
            assert torch.equal(run(algorithm, fed, state, 1).state.x, run(algorithm, other, algorithm.init(other, k.x0), 2).state.x)
        assert now[0] == pytest.approx(waited, abs=1)
    fed = Federation(k.problem, k.data, engine=(wire := quiet(tries=2)), quorum=2)
    state = run(algorithm, fed, algorithm.init(fed, k.x0), 1).state
    wire.transport, now[0] = Refusing(wire.transport, site_1=1000), 0.0
    run(algorithm, fed, state, 1)  # without it
    assert (now[0], fed.away) == (0.0, {"site-1"})


def test_those_that_the_quorum_needs_are_waited_for_and_no_others(now: list[float]) -> None:
    """One site is gone for good, another drops out and comes back: the round is played with the latter."""
    k = known.minimization()
    algorithm, names = FedAvg(0.1, 2, 2), len(known.minimization().data.names)
    fed = Federation(k.problem, k.data, engine=(wire := quiet(tries=2)), quorum=names - 1)
    other = Federation(k.problem, k.data, engine="loop")
    state, expected = algorithm.init(fed, k.x0), algorithm.init(other, k.x0)
    wire.transport = Refusing(wire.transport, site_1=10_000)
    state = run(algorithm, fed, state, 1).state
    wire.transport.refuses["site-2"] = 30
    state = run(algorithm, fed, state, 1).state
    assert fed.away == {"site-1"}
    assert 10 < now[0] < 20
    other.away = {"site-1"}
    for _ in range(2):
        expected = algorithm.round(other, expected)
    assert torch.equal(state.x, expected.x)
    wire.transport.refuses |= {"site-2": 1000, "site-0": 1000}  # at the roll call already
    with pytest.raises(Away, match=r"site-[02]"):
        run(algorithm, fed, state, 1)


def test_sites_that_are_restarted_together_are_waited_for_together(now: list[float], tmp_path: Path) -> None:
    k, wire = known.minimization(), quiet(tmp_path / "sites", tries=2)
    algorithm = SCAFFOLD(0.1, 2, 2)
    fed, other = Federation(k.problem, k.data, engine=wire), Federation(k.problem, k.data, engine="loop")
    restarted: list[int] = []

    def progress(rounds: int, of: int) -> None:
        if rounds == 5 and not restarted:
            restarted.append(rounds)
            for place in (1, 2):
                restart(wire, place)
            wire.transport = Refusing(wire.transport, site_1=6, site_2=20)

    found = run(algorithm, fed, algorithm.init(fed, k.x0), 9, folder=tmp_path / "run", save_every=3, on_progress=progress)
    assert torch.equal(found.state.x, run(algorithm, other, algorithm.init(other, k.x0), 9).state.x)
    wire, now[0] = quiet(tries=2), 0.0  # and where there is no checkpoint, it is told at once what is lost
    fed = Federation(k.problem, k.data, engine=wire)
    state = run(algorithm, fed, algorithm.init(fed, k.x0), 2).state
    restart(wire, 1)
    wire.transport = Refusing(wire.transport, site_1=6)
    with pytest.raises(StateLost, match=r"^site 'site-1' has come back without 1 of the values that the run counts on$"):
        run(algorithm, fed, state, 1)
    assert now[0] < 5


def test_a_frame_that_always_breaks_the_connection_is_told_of(now: list[float]) -> None:
    """Who asks the site whether it is there finds that it is."""
    k = known.minimization()
    algorithm = FedAvg(0.1, 2, 2)
    fed = Federation(k.problem, k.data, engine=(wire := quiet(tries=2)))
    state = run(algorithm, fed, algorithm.init(fed, k.x0), 1).state

    class Breaking(InProcess):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def exchange(self, frames: Any, seconds: float) -> Any:
            replies = self.inner.exchange(frames, seconds)
            broken = [name for name, frame in frames.items() if name == "site-1" and b'"roll"' not in frame]
            return {**replies, **dict.fromkeys(broken, ConnectionError("resource_exhausted: message larger than max"))}

    wire.transport = Breaking(wire.transport)
    with pytest.raises(Away, match="client 'site-1': resource_exhausted: message larger than max, 2 times over"):
        run(algorithm, fed, state, 1)
    assert now[0] < 5
