"""A host behind gRPC: who may call is settled by certificates, and what they may ask by the host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from ..engines.grpc import OPTIONS, read_pems
from ..errors import ConfigError
from .certificates import SERVER, check
from .host import Host

THREADS = 4  # frames of several runs, and of one run again while the first is executed
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
        handler = grpc.method_handlers_generic_handler("rookery.Site", {"Answer": grpc.unary_unary_rpc_method_handler(self._answer)})
        self.server: Any = grpc.server(ThreadPoolExecutor(THREADS), handlers=(handler,), options=[*OPTIONS, *OWN])
        if certificates is not None:
            key, certificate, authority = read_pems(Path(certificates), "site")
            check(host.name, Path(certificates), key, certificate, authority)
            trust = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        try:
            self.port = self.server.add_insecure_port(address) if certificates is None else self.server.add_secure_port(address, trust)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise ConfigError(f"nobody can listen at {address!r} here: another process does, or it is no address of this machine; write "
                              "listen = \"0.0.0.0:7443\", or another port")

    def start(self) -> None:
        self.server.start()

    def stop(self, grace: float | None = 1.0) -> None:
        self.server.stop(grace).wait()

    def wait(self) -> None:
        self.server.wait_for_termination()

    def _answer(self, frame: bytes, context: Any) -> bytes:
        # every site has a certificate of the same authority, and only the server may ask
        if self.secure and SERVER.encode() not in context.auth_context().get("x509_subject_alternative_name", []):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "only the federation's server may ask this site")
        return self.host.answer(frame)
