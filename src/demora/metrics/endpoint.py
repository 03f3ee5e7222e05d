"""A port on which a worker shows its metrics to Prometheus."""

import socket
import threading
from http.server import BaseHTTPRequestHandler
from selectors import EVENT_READ, DefaultSelector
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ..system import forks
from .measured import Measured

PATH = "/metrics"
PATIENCE = 5.0  # seconds that a caller has to send the next bytes of its request, or to read the next of the answer


class Endpoint:
    """Answers `GET /metrics` for the length of a `with` block, on a thread of its own, so that a handler that blocks the
    worker's loop does not delay it. It answers one caller at a time, and needs no key."""

    def __init__(self, listener: socket.socket, measured: Measured) -> None:
        self._listener = listener
        registry = CollectorRegistry()
        registry.register(measured)
        self._server = _Server(listener, registry)
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="demora-metrics", daemon=True)
        forks.release_in_child(self, Endpoint.descriptors)

    def descriptors(self) -> list[int]:
        """Return the file descriptors that a forked child must close."""
        return [one.fileno() for one in (self._listener, self._wake, self._woken)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._wake.close()
        self._thread.join(PATIENCE)
        self._server.server_close()

    def _serve(self) -> None:
        with DefaultSelector() as selector, self._woken:
            selector.register(self._listener, EVENT_READ)
            selector.register(self._woken, EVENT_READ)
            while self._woken not in [key.fileobj for key, _ in selector.select()]:
                self._server.handle_request()


class _Server(TCPServer):
    """The server of one socket that listens already."""

    timeout = 0  # of `handle_request`, which is called when there is a caller

    def __init__(self, listener: socket.socket, registry: CollectorRegistry) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.registry = listener, registry

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a caller that went away or was too slow."""


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, explain=f"the metrics are at {PATH}")
            return
        text = generate_latest(self.server.registry)
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def version_string(self) -> str:
        return "demora"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
