"""What an algorithm sends in a round is found for every one of them, and is what its paper says."""

from __future__ import annotations

import pytest

from rookery.sites import Rules
from rookery.studies import algorithms
from rookery.studies.communication import as_formula, communication


@pytest.mark.parametrize("title", sorted(algorithms()))
def test_what_crosses_the_network_is_found_for_every_algorithm(title: str) -> None:
    _, lines, sent = communication(algorithms()[title])
    Rules((title,), values=tuple(sent)).check()
    assert {f"{title}.{line.what}" for line in lines if line.direction == "up"} <= set(sent)
    assert {line.direction for line in lines} == {"down", "up"}
    # lengths that do not depend on those of x and y: FeDXL sends the scores of eight rows in each step, and gets those of two clients
    fixed = {"FastDRO": {1, 2, 4, 30}, "FeDXL1": {8, 32}, "FeDXL2": {8, 32}}.get(title, {1})
    assert all(not as_formula(line.floats).isdigit() or line.floats in fixed for line in lines)
    assert all(line.what for line in lines)


def test_crossing_of_feddro_is_its_papers() -> None:
    _, lines, sent = communication(algorithms()["FedDRO"])
    assert sent == ["FedDRO.inner_value", "FedDRO.track[0]", "FedDRO.descend[0]"]
    assert [(line.direction, as_formula(line.floats)) for line in lines] == [
        ("down", "d"), ("down", "d_y"), ("up", "d_y"), ("down", "d_y"), ("up", "d_y"), ("down", "d_y"), ("up", "d")]
