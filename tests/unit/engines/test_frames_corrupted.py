"""Hundreds of corrupted frames, each with a digest that fits, are refused without a trace."""

from __future__ import annotations

import pytest
from corruptions import BYTES, STRUCTURED, check_refused
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from recorded_frames import Moment


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_hundreds_of_corrupted_frames_are_refused_without_a_trace(moments: list[Moment], data: st.DataObject) -> None:
    label = data.draw(st.sampled_from([*BYTES, "splice", *STRUCTURED]))
    if label == "splice":
        moment, other = data.draw(st.sampled_from(moments)), data.draw(st.sampled_from(moments))
        cut, paste = data.draw(st.integers(0, len(moment.frame))), data.draw(st.integers(0, len(other.frame)))
        frame = moment.frame[:cut] + other.frame[paste:]
        assume(frame not in (moment.frame, other.frame))
        check_refused(moment, frame, ("FrameError",), label)
        return
    corruption = {**BYTES, **STRUCTURED}[label]
    moment = data.draw(st.sampled_from([m for m in moments if corruption.needs(m)]))
    check_refused(moment, corruption.make(moment, data.draw), corruption.errors, label)


@pytest.mark.parametrize("label", STRUCTURED)
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_corruption_is_refused(label: str, moments: list[Moment], data: st.DataObject) -> None:
    """The same, kind by kind, so that a failure says which."""
    moment = data.draw(st.sampled_from([m for m in moments if STRUCTURED[label].needs(m)]))
    check_refused(moment, STRUCTURED[label].make(moment, data.draw), STRUCTURED[label].errors, label)
