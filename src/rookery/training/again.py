"""What a site misses is done again without it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import Away, StateLost
from ..federation.federation import Federation

LOG = logging.getLogger(__name__)
T = TypeVar("T")


def roll_call(fed: Federation[Any], what: str) -> None:
    """Clients that were away and are there again take part again. Where others are missing now, and too few left, these are asked all the
    same, and waited for.
    """
    if fed.away:
        before, left = fed.away, fed.engine.roll_call(fed.away)
        fed.away = left if fed.population - len(left) >= fed.quorum else left & before
        for name in sorted(before - left):
            LOG.warning("%s: %s is back", what, name)


def again(fed: Federation[Any], what: str, work: Callable[[], T]) -> T:
    """What a round, an evaluation or a checkpoint comes to; where a site misses it, it is played again with the same draws, without the
    site's clients.

    Weights, shares and scales are fixed before an exchange, so that leaving a site out in the middle of one would not be exact; played
    again it is what it would have been had the site not been there when it began. `StateLost` where a site has come back without values
    that are in use, and `Away` where fewer than the quorum are left.
    """
    roll_call(fed, what)
    lost: set[str] = set()
    for _ in range(1 + fed.population):
        counters = dict(fed.counters)
        try:
            return work()
        except (Away, StateLost) as error:
            fed.counters, last = counters, error
            if str(error) in lost:  # it was not for want of asking again
                raise
            lost.add(str(error))
            fed.missed(error)
            LOG.warning("%s is played again: %s", what, error)
    raise last
