"""(w) The HTTP service: requests per second over 64 connections, beside a bare Starlette endpoint on uvicorn with httptools
that reads and answers the same JSON. The same endpoint on our server and on h11 compares the servers alone.

All that is compared runs in turn, in short slices, since the speed of a machine changes from one second to the next.

Servers run in processes of their own. There the garbage collector skips what was loaded at the start, as in `demora serve`:
a collection of all of it would stop every request for 30 ms. The load is one process that writes requests and counts
answers, so that it takes less of the machine than they do.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

from bench.databases import Databases

CONNECTIONS, TURNS = 64, 3
WARM, SECONDS = 0.3, 1.0  # of one turn
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
        programs = (UVICORN.format("httptools"), OURS, UVICORN.format("h11"))
        async with (
            _server(programs[0], job=job) as bare,
            _server(programs[1], job=job) as ours,
            _server(programs[2], job=job) as h11,
        ):
            for kind, request in _requests(job["id"]).items():
                ports = {f"http: {kind}": port, f"http: bare {kind}": bare}
                if kind == "POST":
                    ports |= {"http: bare POST on our server": ours, "http: bare POST on h11": h11}
                for name, load in (await _in_turn(ports, request)).items():
                    found |= _named(name, load)
                found[f"http: {kind} / bare"] = found[f"http: {kind}"] / found[f"http: bare {kind}"]
    found["http, our server / httptools"] = found["http: bare POST on our server"] / found["http: bare POST"]
    found["http, our server / h11"] = found["http: bare POST on our server"] / found["http: bare POST on h11"]
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


class Turn(NamedTuple):
    """The seconds that each answer took, and those of the turn."""

    took: list[float]
    seconds: float


async def _in_turn(ports: Mapping[str, int], request: bytes) -> dict[str, Load]:
    """The load on each of these servers, each of which has several turns."""
    turns = [{name: await _turn(port, request) for name, port in ports.items()} for _ in range(TURNS)]
    return {name: _load([turn[name] for turn in turns]) for name in ports}


def _load(turns: Sequence[Turn]) -> Load:
    took, seconds = sorted(one for turn in turns for one in turn.took), sum(turn.seconds for turn in turns)
    return Load(len(took) / seconds, 1000 * took[len(took) * 99 // 100])


async def _turn(port: int, request: bytes) -> Turn:
    loop = asyncio.get_running_loop()
    callers = [Caller(request) for _ in range(CONNECTIONS)]
    for caller in callers:
        await loop.create_connection(caller.itself, "127.0.0.1", port)
    await asyncio.sleep(WARM)
    for caller in callers:
        caller.took.clear()
    began = time.perf_counter()
    await asyncio.sleep(SECONDS)
    took, seconds = [one for caller in callers for one in caller.took], time.perf_counter() - began
    await asyncio.gather(*(caller.finish() for caller in callers))  # what is left to do would slow down the next turn
    if troubles := {caller.trouble for caller in callers if caller.trouble}:
        raise RuntimeError(f"the server answered {min(troubles)}")
    return Turn(took, seconds)


class Caller(asyncio.Protocol):
    """Sends a request again and again on one connection, each after the answer to the one before."""

    def __init__(self, request: bytes) -> None:
        self.took: list[float] = []  # seconds of each answer
        self.trouble, self._ended = "", False
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request, self._said, self._needs, self._asked_at = request, bytearray(), 0, 0.0
        self._transport: asyncio.Transport

    def itself(self) -> "Caller":
        return self

    def end(self) -> None:
        self._ended = True
        self._transport.abort()

    async def finish(self) -> None:
        """Wait for the last answer, and close the connection."""
        self._ended = True
        await self._gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self.trouble = self.trouble or ("" if self._ended else "nothing: it closed a connection")
        self._gone.set_result(None)

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
            if self._ended:
                self._transport.abort()
            else:
                self._ask()

    def _ask(self) -> None:
        self._said.clear()
        self._needs, self._asked_at = 0, time.perf_counter()
        self._transport.write(self._request)


def _value(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]
