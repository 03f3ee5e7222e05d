"""Reverse proxies that keep connections to a server and use them for one caller after another.

`Pooling` is a small one for every machine: it believes what a request says of its length, as proxies do, and passes on
everything else as it is. nginx, HAProxy and Caddy are used where they are on the PATH.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.servers.ports import free_port

PATIENCE = 20.0  # seconds

_NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream service {{ server 127.0.0.1:{server}; keepalive 1; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://service; proxy_http_version 1.1; proxy_request_buffering off; proxy_set_header Host localhost;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection;
    }}
  }}
}}
"""
_HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  http-reuse always
frontend callers
  bind 127.0.0.1:{port}
  default_backend service
backend service
  server demora 127.0.0.1:{server} pool-max-conn 1
"""
_CADDY = """
{{
  admin off
  auto_https off
}}
http://:{port} {{
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:{server} {{
    header_up Host localhost
    transport http {{
      max_conns_per_host 1
    }}
  }}
}}
"""
_PREFIX_NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location /kept/ {{ proxy_pass http://127.0.0.1:{server}; proxy_set_header Host $http_host; proxy_buffering off; }}
    location /stripped/ {{ proxy_pass http://127.0.0.1:{server}/; proxy_set_header Host $http_host; proxy_buffering off; }}
  }}
}}
"""
_PREFIX_CADDY = """
{{
  admin off
  auto_https off
}}
http://:{port} {{
  bind 127.0.0.1
  handle /kept/* {{
    reverse_proxy 127.0.0.1:{server}
  }}
  handle_path /stripped/* {{
    reverse_proxy 127.0.0.1:{server}
  }}
}}
"""
_COMMANDS = {
    "nginx": (_NGINX, ["-p", "{folder}", "-c", "{settings}"]),
    "haproxy": (_HAPROXY, ["-db", "-f", "{settings}"]),
    "caddy": (_CADDY, ["run", "--adapter", "caddyfile", "--config", "{settings}"]),
}
PROGRAMS = tuple(_COMMANDS)
BELOW_A_PATH = {"nginx": _PREFIX_NGINX, "caddy": _PREFIX_CADDY}  # pass on `/kept/…` as it is, and `/stripped/…` without it


class Pooling:
    """A proxy with one connection to the server, which all callers share in turn."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()
        self.dialled = 0  # connections to the server so far

    async def serve(self, caller: asyncio.StreamReader, to_caller: asyncio.StreamWriter) -> None:
        try:
            while head := await _head(caller):
                async with self._turn:
                    await self._exchange(head, caller, to_caller)
        except (OSError, asyncio.IncompleteReadError):
            self._hang_up()
        finally:
            to_caller.transport.abort()

    async def _exchange(self, head: bytes, caller: asyncio.StreamReader, to_caller: asyncio.StreamWriter) -> None:
        """Send the body while the answer is read. The connection is used again once both are complete."""
        if self._server is None:
            self._server = await asyncio.open_connection("127.0.0.1", self._server_port)
            self.dialled += 1
        server, to_server = self._server
        to_server.write(head)
        answer = asyncio.create_task(_pass_answer(server, to_caller))
        left = int(_value(head, b"content-length") or 0)
        while left:
            data = await caller.read(min(left, 65536))
            if not data:
                raise ConnectionError
            left -= len(data)
            to_server.write(data)
            await to_server.drain()
        if await answer:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server[1].transport.abort()
            self._server = None


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def _pass_answer(server: asyncio.StreamReader, to_caller: asyncio.StreamWriter) -> bool:
    """Whether the server closes the connection after it."""
    head = await server.readuntil(b"\r\n\r\n")
    to_caller.write(head + await server.readexactly(int(_value(head, b"content-length") or 0)))
    return _value(head, b"connection") == b"close"


def _value(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        given, _, value = line.partition(b":")
        if given.lower() == name:
            return value.strip()
    return None


@asynccontextmanager
async def pooling(server_port: int) -> AsyncIterator[tuple[Pooling, int]]:
    """The small proxy, and the port that it listens on."""
    proxy = Pooling(server_port)
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as listening:
        yield proxy, listening.sockets[0].getsockname()[1]


@contextmanager
def real(program: str, server_port: int, folder: Path, text: str | None = None) -> Iterator[int]:
    """One of `PROGRAMS` before the server, with its usual settings or this text of them, and the port that it listens on."""
    found = shutil.which(program)
    assert found is not None
    usual, arguments = _COMMANDS[program]
    text = text or usual
    port, settings = free_port(), folder / "settings"
    settings.write_text(text.format(port=port, server=server_port, folder=folder))
    command = [found, *(part.format(folder=folder, settings=settings) for part in arguments)]
    environment = os.environ | {"XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log) as process,
    ):
        try:
            _await_listening(process, port, folder / "log")
            yield port
        finally:
            process.kill()


def _await_listening(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the proxy did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.02)
        else:
            return
