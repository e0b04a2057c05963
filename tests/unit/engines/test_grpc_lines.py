"""Calls to sites that stay open: every exchange has the replies to its own frames, whoever asks beside it and whatever broke before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("grpc")

import hosts

from rookery.engines.grpc import Grpc
from rookery.sites.service import LINES, Service


@contextmanager
def served(folder: Path, answer: Callable[[bytes], bytes], name: str = "north") -> Iterator[Service]:
    """A site that answers frames by a function."""
    host = hosts.host(folder)
    host.answer = answer  # type: ignore[method-assign]
    service = Service(host, f"unix:{folder}/{name}", None)
    service.start()
    try:
        yield service
    finally:
        service.stop(0)


def test_exchanges_at_the_same_time_have_their_own_replies(tmp_path: Path) -> None:
    def answer(frame: bytes) -> bytes:
        time.sleep(0.01 * (frame[0] % 3))
        return frame[::-1]

    def ask(k: int) -> bool:
        frame = bytes([k, 1, 2])
        return all(transport.exchange({"north": frame}, 20) == {"north": frame[::-1]} for _ in range(5))

    with served(tmp_path, answer), Grpc({"north": f"unix:{tmp_path}/north"}) as transport, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(24)))
        assert 1 <= len(transport.idle["north"]) <= 8


def test_an_exchange_with_nobody_ends_at_once(tmp_path: Path) -> None:
    with Grpc({"north": f"unix:{tmp_path}/north"}) as transport, ThreadPoolExecutor(1) as pool:
        assert pool.submit(transport.exchange, {}, 3600).result(20) == {}


def test_a_late_reply_is_nobody_else_s(tmp_path: Path) -> None:
    go_on = threading.Event()

    def answer(frame: bytes) -> bytes:
        if frame == b"slow":
            assert go_on.wait(20)
        return frame

    with served(tmp_path, answer), Grpc({"north": f"unix:{tmp_path}/north"}) as transport:
        found = transport.exchange({"north": b"slow"}, 0.2)["north"]
        assert isinstance(found, TimeoutError)
        assert str(found) == "no answer in 0.2 s"
        assert transport.exchange({"north": b"next"}, 20) == {"north": b"next"}
        go_on.set()
        assert transport.exchange({"north": b"last"}, 20) == {"north": b"last"}


def test_one_site_that_is_late_takes_no_reply_from_another(tmp_path: Path) -> None:
    """Also large replies come while the server waits for the late one."""
    go_on, large = threading.Event(), bytes(8 * 2**20)

    def late(frame: bytes) -> bytes:
        assert go_on.wait(20)
        return frame

    addresses = {name: f"unix:{tmp_path}/{name}" for name in ("late", "north")}
    with served(tmp_path, late, "late"), served(tmp_path, lambda frame: large), Grpc(addresses) as transport:
        found = transport.exchange({"late": b"a", "north": b"b"}, 4.0)
        go_on.set()
    assert isinstance(found["late"], TimeoutError)
    assert found["north"] == large


def test_a_site_that_was_started_again_is_asked_over_a_new_line(tmp_path: Path) -> None:
    with Grpc({"north": f"unix:{tmp_path}/north"}) as transport:
        for word in (b"first", b"second"):
            with served(tmp_path, lambda frame, word=word: word):  # type: ignore[misc]
                for _ in range(100):  # until gRPC tries to connect again
                    found = transport.exchange({"north": b"x"}, 20)["north"]
                    if found == word:
                        break
                    time.sleep(0.1)
                assert found == word
            gone = transport.exchange({"north": b"x"}, 5)["north"]
            assert isinstance(gone, ConnectionError)
            assert str(gone).startswith(("unavailable: ", "cancelled: ", "it has ended the connection"))


def test_a_site_ends_whoever_is_connected_and_answers_what_is_under_way(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def answer(frame: bytes) -> bytes:
        if frame == b"under way":
            entered.set()
            assert go_on.wait(20)
        return frame

    addresses = {"north": f"unix:{tmp_path}/north"}
    with served(tmp_path, answer) as service, Grpc(addresses) as idle, Grpc(addresses) as busy, ThreadPoolExecutor(1) as pool:
        idle.exchange({"north": b"x"}, 20)
        asked = pool.submit(busy.exchange, {"north": b"under way"}, 20)
        assert entered.wait(20)
        ended = service.end(3600)
        assert not ended.wait(0.3)
        go_on.set()
        assert asked.result() == {"north": b"under way"}
        assert ended.wait(20)


def test_more_lines_than_a_site_has_are_refused_by_name(tmp_path: Path) -> None:
    addresses = {"north": f"unix:{tmp_path}/north"}
    with served(tmp_path, lambda frame: frame), Grpc(addresses) as transport:
        transport.idle["north"] = [line for _ in range(LINES) for line in _opened(transport)]
        with Grpc(addresses) as another:
            found = another.exchange({"north": b"x"}, 20)["north"]
    assert isinstance(found, ConnectionError)
    assert str(found).startswith("resource_exhausted: ")


def _opened(transport: Grpc) -> list[object]:
    """A line of its own that has answered."""
    transport.idle["north"] = []
    assert transport.exchange({"north": b"x"}, 20) == {"north": b"x"}
    return transport.idle["north"]  # type: ignore[return-value]
