"""(w) The HTTP service: requests per second over 64 connections, beside a bare Starlette endpoint on the same server.

Servers run in processes of their own; the load is one process that writes requests and counts answers, so that it takes less
of the machine than they do.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench.databases import Databases

CONNECTIONS, SECONDS = 64, 3.0
BODY = b'{"type":"bench.noop","payload":{"to":"user@example.com","subject":"hello there"},"delay":3600000}'
PREAMBLE = """
import asyncio, socket, sys, uvloop
from datetime import timedelta
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def add(request):
    return JSONResponse(await request.json(), 201, {"location": "/api/v1/jobs/1"})

async def get(request):
    return JSONResponse({"id": request.path_params["id"]})

bare = Starlette(routes=[Route("/api/v1/jobs", add, methods=["POST"]), Route("/api/v1/jobs/{id}", get)])

def listener():
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listener.getsockname()[1], flush=True)
    return listener
"""
DEMORA = """
from demora import Demora
from demora.runtime.service import serve
from demora.settings import Settings
url, redis = sys.argv[1], sys.argv[2] or None
settings = Settings(database_url=url, redis_url=redis, port=0)
started = lambda at, _: print(at.rpartition(":")[2], flush=True)
uvloop.run(serve(Demora(url, redis), settings, with_worker=False, started=started))
"""
OURS = """
from demora.api.server import Server
async def main():
    await Server(bare, grace=timedelta(seconds=1)).serve([listener()])
uvloop.run(main())
"""
UVICORN = """
import uvicorn
options = dict(ws="none", lifespan="off", access_log=False, log_level="warning", server_header=False)
config = uvicorn.Config(bare, http="{}", **options)
uvloop.run(uvicorn.Server(config).serve([listener()]))
"""
BARE = {"bare Starlette": OURS, "on httptools": UVICORN.format("httptools"), "on h11": UVICORN.format("h11")}


async def measure(on: Databases) -> dict[str, float]:
    """A job added and read, in turns, on each server: pairs of requests per second."""
    found = {}
    async with on.new() as url, _server(DEMORA, url, on.redis_url or "") as port:
        found["http: add and get"] = await _load(port)
    for name, program in BARE.items():
        async with _server(program) as port:
            found[f"http: {name}"] = await _load(port)
    found["http / bare Starlette"] = found["http: add and get"] / found["http: bare Starlette"]
    found["http, our server / httptools"] = found["http: bare Starlette"] / found["http: on httptools"]
    found["http, our server / h11"] = found["http: bare Starlette"] / found["http: on h11"]
    return found


@asynccontextmanager
async def _server(program: str, *arguments: str) -> AsyncIterator[int]:
    command = [sys.executable, "-c", PREAMBLE + program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(await asyncio.to_thread(process.stdout.readline))
        finally:
            process.terminate()
            process.wait()


async def _load(port: int) -> float:
    loop = asyncio.get_running_loop()
    callers = [Caller() for _ in range(CONNECTIONS)]
    for caller in callers:
        await loop.create_connection(caller.itself, "127.0.0.1", port)
    await asyncio.sleep(0.5)  # warm
    began, before = time.perf_counter(), sum(caller.pairs for caller in callers)
    await asyncio.sleep(SECONDS)
    done, took = sum(caller.pairs for caller in callers) - before, time.perf_counter() - began
    for caller in callers:
        caller.end()
    if troubles := {caller.trouble for caller in callers if caller.trouble}:
        raise RuntimeError(f"the server answered {min(troubles)}")
    return done / took


class Caller(asyncio.Protocol):
    """Adds a job, reads it, and so on, on one connection."""

    def __init__(self) -> None:
        self.pairs, self.trouble, self._ended = 0, "", False
        self._said, self._next = b"", self._added
        self._transport: asyncio.Transport

    def itself(self) -> "Caller":
        return self

    def end(self) -> None:
        self._ended = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._add()

    def connection_lost(self, exc: Exception | None) -> None:
        self.trouble = self.trouble or ("" if self._ended else "nothing: it closed a connection")

    def data_received(self, data: bytes) -> None:
        self._said += data
        head, gap, body = self._said.partition(b"\r\n\r\n")
        if gap and len(body) >= int(_value(head, b"content-length")):
            self._said, then = b"", self._next
            if head[9:12] not in (b"200", b"201"):
                self.trouble = head[:12].decode()
                self._transport.abort()
            else:
                then(head)

    def _add(self) -> None:
        self._next: Callable[[bytes], None] = self._added
        head = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\nuser-agent: bench\r\naccept: */*\r\n"
        head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)
        self._transport.write(head + BODY)

    def _added(self, head: bytes) -> None:
        self._next = self._got
        path = _value(head, b"location")
        self._transport.write(b"GET %s HTTP/1.1\r\nhost: localhost\r\nuser-agent: bench\r\naccept: */*\r\n\r\n" % path)

    def _got(self, head: bytes) -> None:
        self.pairs += 1
        self._add()


def _value(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]
