"""Frames over gRPC with mutual TLS: deadlines, connections, limits and encryption are gRPC's business."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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
        self.calls = {name: channel.unary_unary(METHOD) for name, channel in self.channels.items()}

    def exchange(self, frames: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes | Exception]:
        if unknown := sorted(frames.keys() - self.calls.keys()):
            raise EngineError(f"nobody has said where site {unknown[0]!r} listens; those known are {', '.join(sorted(self.calls))}")
        waiting = {name: self.calls[name].future(frame, timeout=seconds, wait_for_ready=False) for name, frame in frames.items()}
        return {name: _result(call, seconds) for name, call in waiting.items()}

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()

    def __enter__(self) -> Grpc:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _result(call: Any, seconds: float) -> bytes | Exception:
    try:
        reply: bytes = call.result()
        return reply
    except grpc.RpcError as error:
        late = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        return TimeoutError(f"no answer in {seconds:g} s") if late else ConnectionError(f"{error.code().name.lower()}: {error.details()}")


def host_of(name: str) -> str:
    """A site's name as a host's name, which certificates are about: names of sites may have any characters."""
    return f"{name.encode().hex()[:60]}.site.rookery"
