"""(w) The HTTP service: requests per second over 64 connections, beside a bare Starlette endpoint on the same server that
reads and answers the same JSON.

Servers run in processes of their own. There the garbage collector skips what was loaded at the start, as in `demora serve`:
a collection of all of it would stop every request for 30 ms. The load is one process that writes requests and counts
answers, so that it takes less of the machine than they do.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

from bench.databases import Databases

CONNECTIONS, SECONDS = 64, 3.0
BODY = b'{"type":"bench.noop","payload":{"to":"user@example.com","subject":"hello there"},"delay":3600000}'
PREAMBLE = """
import asyncio, gc, socket, sys, uvloop
from datetime import timedelta
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

JOB = {job}

async def add(request):
    return JSONResponse(JOB | await request.json(), 201, {{"location": "/api/v1/jobs/1"}})

async def add_batch(request):
    return JSONResponse({{"jobs": [JOB | one for one in (await request.json())["jobs"]]}}, 201)

async def get(request):
    return JSONResponse(JOB | {{"id": request.path_params["id"]}})

bare = Starlette(routes=[
    Route("/api/v1/jobs", add, methods=["POST"]),
    Route("/api/v1/jobs/batch", add_batch, methods=["POST"]),
    Route("/api/v1/jobs/{{id}}", get),
])

def run(main):
    gc.collect()
    gc.freeze()
    uvloop.run(main)

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
run(serve(Demora(url, redis), settings, with_worker=False, started=started))
"""
OURS = """
from demora.api.http_server.server import Server
async def main():
    await Server(bare, grace=timedelta(seconds=1)).serve([listener()])
run(main())
"""
UVICORN = """
import uvicorn
options = dict(ws="none", lifespan="off", access_log=False, log_level="warning", server_header=False)
config = uvicorn.Config(bare, http="{}", **options)
run(uvicorn.Server(config).serve([listener()]))
"""


async def measure(on: Databases) -> dict[str, float]:
    """Requests per second of each kind and their p99, on demora and on the bare endpoint."""
    found: dict[str, float] = {}
    async with on.new() as url, service(url, on.redis_url) as port:
        job = await _add_one(port)
        requests = _requests(job["id"])
        async with _server(OURS, job=job) as bare:
            for kind, request in requests.items():  # on both in turn, since the speed of a machine changes
                found |= _named(f"http: {kind}", await _load(port, request))
                found |= _named(f"http: bare {kind}", await _load(bare, request))
                found[f"http: {kind} / bare"] = found[f"http: {kind}"] / found[f"http: bare {kind}"]
    for name in ("httptools", "h11"):
        async with _server(UVICORN.format(name), job=job) as port:
            found |= _named(f"http: bare POST on {name}", await _load(port, requests["POST"]))
            found[f"http, our server / {name}"] = found["http: bare POST"] / found[f"http: bare POST on {name}"]
    return found


def service(url: str, redis_url: str | None) -> AbstractAsyncContextManager[int]:
    """A service without a worker, in a process of its own. Yields its port."""
    return _server(DEMORA, url, redis_url or "")


async def answer_times(port: int, path: str, times: int) -> list[float]:
    """The seconds that each of so many requests takes on one connection, one after the other, in order of length."""
    caller = Caller(_request(b"GET " + path.encode()))
    await asyncio.get_running_loop().create_connection(caller.itself, "127.0.0.1", port)
    while len(caller.took) < times and not caller.trouble:
        await asyncio.sleep(0.01)
    caller.end()
    if caller.trouble:
        raise RuntimeError(f"the server answered {caller.trouble}")
    return sorted(caller.took[:times])


def _named(name: str, load: "Load") -> dict[str, float]:
    return {name: load.rate, f"{name} p99 ms": load.p99_ms}


def _requests(id: str) -> dict[str, bytes]:
    return {
        "POST": _request(b"POST /api/v1/jobs", BODY),
        "GET": _request(b"GET /api/v1/jobs/" + id.encode()),
        "batch of 100": _request(b"POST /api/v1/jobs/batch", b'{"jobs":[' + b",".join([BODY] * 100) + b"]}"),
    }


def _request(line: bytes, body: bytes = b"") -> bytes:
    head = line + b" HTTP/1.1\r\nhost: localhost\r\nuser-agent: bench\r\naccept: */*\r\n"
    if body:
        head += b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    return head + b"\r\n" + body


async def _add_one(port: int) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request(b"POST /api/v1/jobs", BODY))
    head = await reader.readuntil(b"\r\n\r\n")
    job: dict[str, Any] = json.loads(await reader.readexactly(int(_value(head, b"content-length"))))
    writer.close()
    return job


@asynccontextmanager
async def _server(program: str, *arguments: str, job: dict[str, Any] | None = None) -> AsyncIterator[int]:
    command = [sys.executable, "-c", PREAMBLE.format(job=repr(job)) + program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(await asyncio.to_thread(process.stdout.readline))
        finally:
            process.terminate()
            process.wait()


class Load(NamedTuple):
    """Answers per second, and the milliseconds that 99 of 100 stayed below."""

    rate: float
    p99_ms: float


async def _load(port: int, request: bytes) -> Load:
    loop = asyncio.get_running_loop()
    callers = [Caller(request) for _ in range(CONNECTIONS)]
    for caller in callers:
        await loop.create_connection(caller.itself, "127.0.0.1", port)
    await asyncio.sleep(0.5)  # warm
    for caller in callers:
        caller.took.clear()
    began = time.perf_counter()
    await asyncio.sleep(SECONDS)
    took, seconds = sorted(one for caller in callers for one in caller.took), time.perf_counter() - began
    for caller in callers:
        caller.end()
    if troubles := {caller.trouble for caller in callers if caller.trouble}:
        raise RuntimeError(f"the server answered {min(troubles)}")
    return Load(len(took) / seconds, 1000 * took[len(took) * 99 // 100])


class Caller(asyncio.Protocol):
    """Sends a request again and again on one connection, each after the answer to the one before."""

    def __init__(self, request: bytes) -> None:
        self.took: list[float] = []  # seconds of each answer
        self.trouble, self._ended = "", False
        self._request, self._said, self._needs, self._asked_at = request, bytearray(), 0, 0.0
        self._transport: asyncio.Transport

    def itself(self) -> "Caller":
        return self

    def end(self) -> None:
        self._ended = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self.trouble = self.trouble or ("" if self._ended else "nothing: it closed a connection")

    def data_received(self, data: bytes) -> None:
        self._said += data
        if not self._needs:
            end = self._said.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._said[:end])
            if head[9:12] not in (b"200", b"201"):
                self.trouble = head[:12].decode()
                self._transport.abort()
                return
            self._needs = end + 4 + int(_value(head, b"content-length"))
        if len(self._said) >= self._needs:
            self.took.append(time.perf_counter() - self._asked_at)
            self._ask()

    def _ask(self) -> None:
        self._said.clear()
        self._needs, self._asked_at = 0, time.perf_counter()
        self._transport.write(self._request)


def _value(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]
