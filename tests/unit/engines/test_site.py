"""How a site counts frames: a new one is executed on its base, the last one again is answered from memory, others are refused by name."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from recorded_frames import CALLS, Moment, Small, exchange, held, of_step, picture, plain, rows, values

from rookery import Federation
from rookery.engines import Wire, frames
from rookery.engines.frames import pack, unpack
from rookery.engines.site import Site
from rookery.engines.transport import InProcess
from rookery.errors import FrameError, StateLost


def test_the_same_frame_twice_is_answered_twice_and_executed_once(moments: list[Moment]) -> None:
    for moment in (m for m in moments if m.maps):
        site = moment.fresh()
        del CALLS[:]
        first, after, calls = site.answer(moment.frame), picture(site), list(CALLS)
        assert first == moment.reply
        for _ in range(2):
            assert site.answer(moment.frame) == first
        assert picture(site) == after
        assert calls == CALLS
    assert any(m.header["ops"][m.maps[0]]["fn"][1] == "step" for m in moments if m.maps)


def test_an_earlier_frame_is_not_answered_again(moments: list[Moment]) -> None:
    """Only the last one is."""
    run = [m for m in moments if m.site.name == "a" and m.site.run == "run of SCAFFOLD"]
    site = run[0].fresh()
    for moment in run[:2]:
        assert site.answer(moment.frame) == moment.reply
    header, _ = unpack(site.answer(run[0].frame))
    assert header["error"] == ["FrameError", "frame 1 came after frame 2, and it is not the same again"]
    assert site.counter == 2


def test_the_last_number_with_another_content_is_not_answered_from_memory(moments: list[Moment]) -> None:
    moment = of_step(moments)
    site = moment.fresh()
    site.answer(moment.frame)
    after = picture(site)
    header, _ = unpack(site.answer(pack({**moment.header, "free": []}, moment.tensors)))
    assert header["error"][0] == "FrameError"
    assert picture(site) == after


def test_a_base_that_is_not_there_says_state_lost_and_names_the_site() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    exchange(fed)
    wire.places[2].base = 7
    with pytest.raises(StateLost, match=r"^site 'c': state lost: frame 2 builds on frame 7, and this site holds what was after \[1\]$"):
        exchange(fed)


def test_a_frame_that_came_to_nothing_elsewhere_is_built_over(moments: list[Moment]) -> None:
    """The next frame names the base before it: what the failed one left is gone, and what it read is still there."""
    moment = of_step(moments)
    site, header = moment.fresh(), moment.header
    before = held(site)
    site.answer(moment.frame)
    assert held(site) != before
    asked = {**header, "k": header["k"] + 1, "ops": [], "want": [], "free": [], "clients": []}
    assert "error" not in unpack(site.answer(pack(asked, {})))[0]
    assert held(site) == before
    assert unpack(site.answer(pack({**header, "k": header["k"] + 2}, moment.tensors)))[1].keys() == unpack(moment.reply)[1].keys()


def test_base_0_is_the_empty_site(moments: list[Moment]) -> None:
    moment = of_step(moments)
    site = moment.fresh()
    assert values(site)
    asked = {**moment.header, "base": 0, "ops": [], "want": [], "free": [], "clients": []}
    assert "error" not in unpack(site.answer(pack(asked, {})))[0]
    assert not values(site)


def test_a_frame_that_comes_again_while_it_is_executed_waits_for_the_reply(moments: list[Moment], monkeypatch: pytest.MonkeyPatch) -> None:
    moment = of_step(moments)
    site, entered, go_on, genuine = moment.fresh(), threading.Event(), threading.Event(), Site._answer
    site.lock = threading.Lock()

    def slow(self: Site, *given: Any) -> bytes:
        entered.set()
        assert go_on.wait(60)
        return genuine(self, *given)

    monkeypatch.setattr(Site, "_answer", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(site.answer, moment.frame)
        assert entered.wait(60)
        del CALLS[:]
        second = pool.submit(site.answer, moment.frame)
        go_on.set()
        assert first.result() == second.result() == moment.reply
    assert CALLS.count("loss") <= len([op for op in moment.header["ops"] if op["op"] == "map"]) * 4


def test_a_restarted_site_says_state_lost() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    exchange(fed)
    old = wire.sites[1]
    wire.sites[1] = Site(old.held.setting, old.run)
    wire.transport = InProcess({site.name: site.answer for site in wire.sites})
    with pytest.raises(StateLost, match=r"^site 'b': state lost: frame 2 builds on frame 1, and this site holds what was after \[\]$"):
        exchange(fed)


def test_a_frame_of_another_run_is_refused(moments: list[Moment]) -> None:
    moment = of_step(moments)
    site = moment.fresh()
    site.run = "the other one"
    before = picture(site)
    header, _ = unpack(site.answer(moment.frame))
    name, message = header["error"]
    assert name == "StateLost"
    assert "'the other one'" in message
    assert "'run of SCAFFOLD'" in message
    assert picture(site) == before


def test_two_runs_have_different_names() -> None:
    assert Wire().run != Wire().run


def test_an_oversized_frame_is_refused(monkeypatch: pytest.MonkeyPatch, moments: list[Moment]) -> None:
    moment = of_step(moments)
    monkeypatch.setattr(frames, "LARGEST", len(moment.frame))
    assert moment.fresh().answer(moment.frame) == moment.reply
    monkeypatch.setattr(frames, "LARGEST", len(moment.frame) - 1)
    site = moment.fresh()
    before = picture(site)
    name, message = unpack(site.answer(moment.frame))[0]["error"]
    assert name == "FrameError"
    assert str(len(moment.frame)) in message
    assert picture(site) == before


def test_an_oversized_broadcast_names_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Federation(plain(), rows(), engine="wire")
    exchange(fed)
    monkeypatch.setattr(frames, "LARGEST", 2000)
    with pytest.raises(FrameError, match=r"^site 'a': a frame may have 2000 bytes; this one has 8\d\d\d$"):
        fed.mean(fed.map(Small().scale, fed.broadcast(torch.zeros(1000, dtype=torch.float64))))
    monkeypatch.undo()
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]
