"""How a site counts frames: the next one is executed, the last one again answered from memory, any other one means that state was lost."""

from __future__ import annotations

import pytest
import torch
from recorded_frames import CALLS, Moment, Small, exchange, of_step, picture, plain, rows

from rookery import Federation
from rookery.engines import Wire, frames
from rookery.engines.frames import pack, unpack
from rookery.engines.site import Site
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
    """Only the last one is; two steps back is state lost."""
    run = [m for m in moments if m.site.name == "a" and m.site.run == "run of SCAFFOLD"]
    site = run[0].fresh()
    for moment in run[:2]:
        assert site.answer(moment.frame) == moment.reply
    header, _ = unpack(site.answer(run[0].frame))
    assert header["error"] == ["StateLost", "state lost: frame 1 came after frame 2"]
    assert site.counter == 2


def test_the_last_number_with_another_content_is_not_answered_from_memory(moments: list[Moment]) -> None:
    moment = of_step(moments)
    site = moment.fresh()
    site.answer(moment.frame)
    after = picture(site)
    header, _ = unpack(site.answer(pack({**moment.header, "free": []}, moment.tensors)))
    assert header["error"][0] == "StateLost"
    assert picture(site) == after


def test_a_skipped_number_says_state_lost_and_names_the_site() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    exchange(fed)
    wire.counters[2] += 1
    with pytest.raises(StateLost, match=r"^site 'c': state lost: frame 3 came after frame 1$"):
        exchange(fed)


def test_a_restarted_site_says_state_lost() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    exchange(fed)
    old = wire.sites[1]
    wire.sites[1] = Site(old.setting, old.run)
    with pytest.raises(StateLost, match=r"^site 'b': state lost: frame 2 came after frame 0$"):
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
