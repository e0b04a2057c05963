"""Frames over gRPC with mutual TLS: deadlines, connections, limits and encryption are gRPC's business."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from ..errors import EngineError

try:
    import grpc
except ModuleNotFoundError:
    raise EngineError("frames over gRPC need grpcio, which is not installed: pip install 'rookery[grpc]'") from None

METHOD = "/rookery.Site/Answer"
LARGEST = 1 << 30  # bytes of a message
OPTIONS = [("grpc.max_send_message_length", LARGEST), ("grpc.max_receive_message_length", LARGEST),
           ("grpc.keepalive_time_ms", 20_000), ("grpc.keepalive_timeout_ms", 10_000), ("grpc.keepalive_permit_without_calls", 1),
           ("grpc.http2.max_pings_without_data", 0), ("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2_000)]


def read_pems(folder: Path, name: str) -> tuple[bytes, bytes, bytes]:
    """The key, the certificate and the authority's certificate of a party, as `rookery site invite` made them."""
    found = []
    for file in (f"{name}.key", f"{name}.pem", "authority.pem"):
        try:
            found.append((folder / file).read_bytes())
        except OSError as error:
            raise EngineError(f"{folder / file} could not be read ({error.strerror}): make it with `rookery site invite`, or copy the "
                              "folder that was made for you") from None
    return found[0], found[1], found[2]


class Grpc:
    """A transport to sites by their addresses.

    sites:        by name, where each listens: "host:port", or "unix:path"
    certificates: the folder with the server's; None for connections without TLS, which only `unix:` addresses and tests should have
    """

    def __init__(self, sites: Mapping[str, str], certificates: Path | str | None = None) -> None:
        self.channels: dict[str, Any] = {}
        for name, address in sites.items():
            if certificates is None:
                self.channels[name] = grpc.insecure_channel(address, OPTIONS)
            else:
                key, certificate, authority = read_pems(Path(certificates), "server")
                trust = grpc.ssl_channel_credentials(authority, key, certificate)
                # a site is who its certificate says, wherever it listens
                self.channels[name] = grpc.secure_channel(address, trust, [*OPTIONS, ("grpc.ssl_target_name_override", host_of(name))])
        self.calls = {name: channel.stream_stream(METHOD) for name, channel in self.channels.items()}
        self.idle: dict[str, list[_Line]] = {name: [] for name in self.channels}

    def exchange(self, frames: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes | Exception]:
        if unknown := sorted(frames.keys() - self.calls.keys()):
            raise EngineError(f"nobody has said where site {unknown[0]!r} listens; those known are {', '.join(sorted(self.calls))}")
        missing, waiting, found = Missing(frames), dict[str, _Line](), dict[str, bytes | Exception]()
        try:
            for name, frame in frames.items():
                waiting[name] = self._line(name)
                waiting[name].send(frame, missing)
            missing.wait(seconds)
            for name in frames:
                try:
                    found[name] = waiting[name].replies.get_nowait()
                except Empty:
                    found[name] = TimeoutError(f"no answer in {seconds:g} s")
                if isinstance(found[name], bytes):
                    self.idle[name].append(waiting.pop(name))
        finally:
            for line in waiting.values():  # those that broke or are late, and all of them where somebody pressed Ctrl-C
                line.end()
        return found

    def _line(self, name: str) -> _Line:
        """One that nobody uses and that still stands, or a new one."""
        while True:
            try:
                line = self.idle[name].pop()
            except IndexError:
                return _Line(name, self.calls[name])
            if line.call.is_active():
                return line

    def close(self) -> None:
        for line in [line for lines in self.idle.values() for line in lines]:
            line.end()
        for channel in self.channels.values():
            channel.close()

    def __enter__(self) -> Grpc:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Missing:
    """The sites of an exchange that have not answered yet. Who waits for them is woken once, by the last."""

    def __init__(self, sites: Iterable[str]) -> None:
        self.sites = set(sites)
        self.none: SimpleQueue[None] = SimpleQueue()

    def wait(self, seconds: float) -> None:
        """Until none is left, or so long."""
        with suppress(Empty):
            if self.sites:
                self.none.get(timeout=seconds)

    def answered(self, site: str) -> None:
        self.sites.discard(site)
        if not self.sites:  # which two may find at once
            self.none.put(None)


class _Line:
    """A call to a site that stays open, so that a frame costs half of what a call of its own would: frames go in, replies come out.

    It is one exchange's at a time, and ended where anything went wrong: the next frame goes over another one.
    """

    def __init__(self, site: str, method: Any) -> None:
        self.site, self.missing, self.ended = site, Missing(()), False
        self.frames: SimpleQueue[bytes | None] = SimpleQueue()
        self.replies: SimpleQueue[bytes | Exception] = SimpleQueue()
        self.call = method(iter(self.frames.get, None))
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, frame: bytes, missing: Missing) -> None:
        """Send a frame whose answer is taken from what is missing."""
        self.missing = missing
        self.frames.put(frame)
        if self.ended:  # it may have looked at `missing` before
            missing.answered(self.site)

    def end(self) -> None:
        self.frames.put(None)
        self.call.cancel()

    def _listen(self) -> None:
        """Takes replies as they come, so that those of all sites come at once."""
        try:
            for reply in self.call:
                self.replies.put(reply)
                del reply  # it may be large, and the next one may be long in coming
                self.missing.answered(self.site)
            self.replies.put(ConnectionError("it has ended the connection"))
        except grpc.RpcError as error:
            said = str(error.details())  # type: ignore[attr-defined]
            other = "; another site answers there, or its certificate is of another name than this" if "Hostname Verif" in said else ""
            self.replies.put(ConnectionError(f"{error.code().name.lower()}: {said}{other}"))  # type: ignore[attr-defined]
        self.ended = True
        self.missing.answered(self.site)
        self.frames.put(None)  # nobody will take another one


def host_of(name: str) -> str:
    """A site's name as a host's name, which certificates are about: names of sites may have any characters."""
    return f"{name.encode().hex()[:60]}.site.rookery"
