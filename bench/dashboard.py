"""(z) The dashboard beside 5,000,000 jobs: how long each page takes, and what 50 open pages cost while 50 jobs a second run.

    python -m bench.dashboard [--database sqlite] [--jobs 1000000]
    python -m bench.dashboard --database postgres --jobs 5000000
    python -m bench.dashboard --kept sqlite:////var/tmp/busy.db

The command measures this case alone and says how far it is; `make bench` measures it too, with 5,000,000 jobs. A database
that is `--kept` is filled once, and the next run loads the pages beside the same jobs. The service
runs in a process of its own and runs no jobs. A page that is open listens to its stream and fetches its live block at each
tick, as a browser does.

Beside the time of a page stands the processor time that the service and the database take for it: on a busy machine that
says more.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

import asyncpg
import httpx

from bench import busy_day, table
from bench.databases import Databases, PostgresServer, SqliteFiles
from bench.stage import PAYLOAD, application, complain, environment, workers
from demora import Demora
from tests.servers import postgres

JOBS = 5_000_000
PAGES = ("", "?span=day", "?span=week", "/jobs")
PAGES += tuple(f"/jobs?q=status:{word}" for word in ("waiting", "completed", "failed"))
PAGES += ("/jobs?q=status:failed+error:Error7", "/jobs?q=error:Error7", "/jobs?q=type:t1*", "/jobs?q=tag:g7")
PAGES += ("/jobs?q=queue:q3+status:completed",)
PAGES += ("/queues", "/queues/q3", "/schedules", "/failures", "/system")
LOADS = 60  # of each page
OPEN, RATE, SECONDS = 50, 50, 20


def main() -> None:
    """Measure this case alone."""
    parser = argparse.ArgumentParser(prog="bench.dashboard", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1_000_000, help="beside which the pages are loaded")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--kept", metavar="URL", help="a database that is filled if it is empty, and not removed")
    args = parser.parse_args()
    database = args.database if args.kept is None else args.kept.partition("://")[0].replace("postgresql", "postgres")
    with _databases(database) as on:
        found = asyncio.run(measure(on, args.jobs, kept=args.kept))
    table.show(found, table.GOALS[database])


@contextmanager
def _databases(wanted: str) -> Iterator[Databases]:
    if wanted == "sqlite":
        yield SqliteFiles()
    else:
        with postgres.running() as server:
            yield PostgresServer(server.url)


async def measure(on: Databases, jobs: int, *, kept: str | None = None) -> dict[str, float]:
    """The p95 of each page in milliseconds, and the share of a core that the service takes with and without open pages."""
    async with on.new() if kept is None else nullcontext(kept) as url:
        async with application(url, on.redis_url) as app:
            is_filled = bool((await (await app.open()).find(limit=1)).jobs)
        if not is_filled:
            await busy_day.fill(url, jobs, _tell)
        async with application(url, on.redis_url) as app, _service(app) as (process, address):
            found = await _pages(address, await _processes(process.pid, url))
    _tell(f"opens {OPEN} pages while {RATE} jobs a second run")
    async with (
        on.new() as url,
        application(url, on.redis_url) as app,
        _service(app) as (process, address),
        workers(app, 1),
        _producer(app),
    ):
        none = await _core(process, SECONDS)
        async with _open_pages(address, OPEN) as fetched:
            every = await _core(process, SECONDS)
            found["dashboard: fetches of an open page per second"] = len(fetched) / OPEN / SECONDS
    found["dashboard: no page open, % of a core"] = 100 * none
    found[f"dashboard: {OPEN} pages open, % of a core"] = 100 * (every - none)
    worst = max(value for name, value in found.items() if name.endswith("p95 ms"))
    return found | {"dashboard: slowest page p95 ms": worst}


def _tell(words: str) -> None:
    print(f"{time.strftime('%X')} {words}", file=sys.stderr)


async def _pages(address: str, processes: "Processes") -> dict[str, float]:
    found = dict[str, float]()
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        for path in PAGES:
            found |= await _page(http, processes, path or "/", path)
        shown = await _shown(http)
        found |= await _page(http, processes, "a job", f"/jobs/{shown[0]}")
        found |= await _page(http, processes, "the rows of a list", f"/jobs?rows={','.join(shown)}", live=True)
    return found


async def _page(
    http: httpx.AsyncClient, processes: "Processes", name: str, path: str, *, live: bool = False
) -> dict[str, float]:
    _tell(f"loads {name}")
    headers = {"x-demora-part": "live"} if live else {}
    times, before = [], 0.0
    for _ in range(LOADS + 1):
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        answer = await http.get(f"/dashboard{path}", headers=headers)
        times.append(time.perf_counter() - began)
        answer.raise_for_status()
        before = before or processes.cpu()
    first, *later = times  # the first one compiles the template, and reads what later ones share
    return {
        f"dashboard: {name} p95 ms": 1000 * sorted(later)[LOADS * 95 // 100],
        f"dashboard: {name} first ms": 1000 * first,
        f"dashboard: {name} CPU ms": 1000 * (processes.cpu() - before) / LOADS,
    }


async def _shown(http: httpx.AsyncClient) -> list[str]:
    return re.findall(r'data-id="([^"]+)"', (await http.get("/dashboard/jobs")).text)


@asynccontextmanager
async def _service(app: Demora) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "demora", "serve", "--no-worker", "--port", "0", "--app", "bench.jobs:app"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=environment(app), stdout=subprocess.PIPE, stderr=said, text=True, bufsize=1)
        try:
            yield process, await asyncio.to_thread(_address, process)
        finally:
            process.terminate()
            process.wait()
            complain(said.seek(0) or said.read())


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if said := re.search(r"http://127\.0\.0\.1:\d+", line):
            return said[0]
    raise RuntimeError("the service did not start")


@asynccontextmanager
async def _producer(app: Demora) -> AsyncIterator[None]:
    """Add jobs steadily for the time of the block."""

    async def add() -> None:
        while True:
            await app.enqueue("bench.noop", PAYLOAD)
            await asyncio.sleep(1 / RATE)

    adding = asyncio.ensure_future(add())
    try:
        yield
    finally:
        adding.cancel()
        await asyncio.wait([adding])


@asynccontextmanager
async def _open_pages(address: str, count: int) -> AsyncIterator[list[float]]:
    """Pages that are open for the time of the block, of all kinds; the times of their fetches."""
    fetched: list[float] = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as http:

        async def look(path: str) -> None:
            page = await http.get(f"/dashboard{path}")
            shown = re.findall(r'data-id="([^"]+)"', page.text)
            there = f"/dashboard{path}" + (f"?rows={','.join(shown)}" if shown else "")
            async with http.stream("GET", "/dashboard/stream") as stream:
                async for line in stream.aiter_lines():
                    if line == "event: changed":
                        (await http.get(there, headers={"x-demora-part": "live"})).raise_for_status()
                        fetched.append(time.monotonic())

        kinds = ("", "/jobs", "/queues", "/failures", "/system")
        pages = [asyncio.ensure_future(look(kinds[n % len(kinds)])) for n in range(count)]
        await asyncio.sleep(3)
        fetched.clear()
        try:
            yield fetched
        finally:
            for page in pages:
                page.cancel()
            await asyncio.wait(pages)
            if failed := [page for page in pages if not page.cancelled() and page.exception()]:
                raise RuntimeError(f"a page met trouble: {failed[0].exception()!r}")


class Processes:
    """The service, and a PostgreSQL on this machine: the processor time that they have taken, in seconds."""

    def __init__(self, service: int, server: int | None = None) -> None:
        self._service, self._server = service, server

    def cpu(self) -> float:
        taken = _cpu(self._service)
        if self._server is not None:
            below = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
            taken += sum(_cpu(pid) for pid in below if _stat(pid)[1:2] == [str(self._server)])
            taken += sum(map(int, _stat(self._server)[13:15])) / os.sysconf("SC_CLK_TCK")  # of those that have ended
        return taken


async def _processes(service: int, url: str) -> Processes:
    if not url.startswith("postgresql"):
        return Processes(service)
    connection = await asyncpg.connect(url)
    try:
        backend = await connection.fetchval("select pg_backend_pid()")
        return Processes(service, int(_stat(backend)[1]) if _stat(backend) else None)
    finally:
        await connection.close()


async def _core(process: subprocess.Popen[str], seconds: float) -> float:
    """The share of a core that a process takes in the seconds to come."""
    before, began = _cpu(process.pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (_cpu(process.pid) - before) / (time.monotonic() - began)


def _cpu(pid: int) -> float:
    return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    main()
