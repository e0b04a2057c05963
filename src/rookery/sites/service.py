"""A host behind gRPC: who may call is settled by certificates, and what they may ask by the host."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from ..engines.grpc import OPTIONS, read_pems
from ..errors import ConfigError
from .certificates import SERVER, check
from .host import Host

FRAMES = 4  # at once: of several runs, and of one run again while the first is executed
LINES = 64  # calls that stay open, each of which has a thread
# by itself a second process may listen at the same port and take some of the frames, and a server whose frame takes minutes is cut off
# because it asks too often whether the site is still there
OWN = [("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 10_000)]


class Service:
    """Listens at an address until it is stopped.

    certificates: the folder that this site was given; None only for `unix:` addresses, whose file its owner guards
    """

    def __init__(self, host: Host, address: str, certificates: Path | str | None) -> None:
        self.host, self.secure = host, certificates is not None
        if certificates is None and not address.startswith("unix:"):
            raise ConfigError(f"a site that listens at {address!r} needs certificates, so that nobody else can ask it anything: write "
                              "certificates = \"folder\", or listen at a unix:path")
        if not address.startswith("unix:") and not re.fullmatch(r".*:[0-9]+", address):
            raise ConfigError(f"listen is \"host:port\", as in \"0.0.0.0:7443\", or \"unix:path\"; got {address!r}")
        handler = grpc.method_handlers_generic_handler("rookery.Site", {"Answer": grpc.stream_stream_rpc_method_handler(self._answers)})
        self.turns, self.ending = threading.Semaphore(FRAMES), False
        self.idle: set[Any] = set()  # lines on which nothing is under way
        self.server: Any = grpc.server(ThreadPoolExecutor(LINES), handlers=(handler,), options=[*OPTIONS, *OWN],
                                       maximum_concurrent_rpcs=LINES)
        if certificates is not None:
            key, certificate, authority = read_pems(Path(certificates), "site")
            check(host.name, Path(certificates), key, certificate, authority)
            trust = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        try:
            self.port = self.server.add_insecure_port(address) if certificates is None else self.server.add_secure_port(address, trust)
        except RuntimeError:
            self.port = 0
        wanted = address.rpartition(":")[2]  # gRPC takes a port's remainder by 65536, and says nothing
        if not self.port or (wanted.isdigit() and not address.startswith("unix:") and int(wanted) not in (0, self.port)):
            self.server.stop(None)
            raise ConfigError(f"nobody can listen at {address!r} here: another process does, or it is no address of this machine; write "
                              "listen = \"0.0.0.0:7443\", or another port")

    def start(self) -> None:
        self.server.start()

    def stop(self, grace: float | None = 1.0) -> None:
        self.end(grace).wait()

    def end(self, grace: float | None) -> Any:
        """Take no more frames, and answer those that are under way within `grace` seconds; gives what can be waited for."""
        self.ending = True
        for context in list(self.idle):
            context.cancel()
        return self.server.stop(grace)

    def wait(self) -> None:
        self.server.wait_for_termination()

    def _answers(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        # every site has a certificate of the same authority, and only the server may ask
        if self.secure and SERVER.encode() not in (context.peer_identities() or ()):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "only the federation's server may ask this site")
        self.idle.add(context)
        try:
            if self.ending:  # whoever ends the idle ones may not have seen this one
                return
            for frame in frames:
                self.idle.discard(context)
                with self.turns:
                    reply = self.host.answer(frame)
                yield reply
                del frame, reply  # they may be large, and the next frame may be long in coming
                self.idle.add(context)
                if self.ending:
                    return
        finally:
            self.idle.discard(context)
