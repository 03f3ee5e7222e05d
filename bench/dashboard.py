"""(z) The dashboard beside 5,000,000 jobs: how long each page takes, and what 50 open pages cost while 50 jobs a second run.

The rows are made in the database, as in (j). The service runs in a process of its own and runs no jobs. A page that is open
listens to its stream and fetches its live block at each tick, as a browser does.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import apsw
import asyncpg
import httpx

from bench import laden
from bench.databases import Databases
from bench.million import HUNDRED_BYTES
from bench.stage import PAYLOAD, application, complain, environment, workers
from demora import Demora
from demora.core.job import Lane
from demora.core.states import Status

PAGES = (
    "",
    "?span=day",
    "?span=week",
    "/jobs",
    "/jobs?q=status:waiting",
    "/jobs?q=status:completed",
    "/jobs?q=status:failed",
)
PAGES += ("/queues", "/queues/default", "/schedules", "/failures", "/system")
LOADS = 60  # of each page
OPEN, RATE, SECONDS = 50, 50, 20
DEAD = 50_000
_DAY = 86_400_000  # milliseconds
SQLITE_ROWS = f"""
with recursive made (n) as (select 1 union all select n + 1 from made where n < ?1)
insert into jobs (id, type, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, token, payload,
                  worker_id, claimed_at, started_at, completed_at, result, error)
select unhex(?2 || '000000000070008000' || printf('%012x', n)), 'bench.noop', 'default', ?4, ?5, 2, ?3 + n, ?3 + n - {_DAY},
    3, 1000, ?4 > 3, '{json.dumps(HUNDRED_BYTES)}', iif(?4 > 3, 'bench', null), iif(?4 > 3, ?3 + n, null),
    iif(?4 > 3, ?3 + n, null), iif(?4 > 3, ?3 + n + 5, null), iif(?4 = 4, '{{"ok":true}}', null), iif(?4 = 5, ?6, null)
from made
"""
_INDEXES = "select sql, name from sqlite_master where type = 'index' and tbl_name = 'jobs' and sql is not null"
_KINDS = (
    (laden.ENDED, "01", -_DAY, Status.COMPLETED, Lane.REALTIME),
    (laden.DELAYED, "02", _DAY // 24, Status.QUEUED, Lane.SCHEDULED),
    (laden.WAITING, "03", -_DAY // 24, Status.QUEUED, Lane.REALTIME),
    (DEAD, "04", -_DAY // 24, Status.FAILED, Lane.REALTIME),
)


async def measure(on: Databases, share: float) -> dict[str, float]:
    """The p95 of each page in milliseconds, and the share of a core that the service takes with and without open pages."""
    async with on.new() as url:
        async with application(url, on.redis_url):
            pass
        await _fill(url, share)
        async with application(url, on.redis_url) as app, _service(app) as (_, address):
            found = await _pages(address)
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


async def _pages(address: str) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=address) as http:
        found = {f"dashboard: {path or '/'} p95 ms": await _p95(http, path) for path in PAGES}
        shown = await _shown(http)
        found["dashboard: a job p95 ms"] = await _p95(http, f"/jobs/{shown[0]}")
        found["dashboard: the rows of a list p95 ms"] = await _p95(http, f"/jobs?rows={','.join(shown)}", live=True)
    return found


async def _p95(http: httpx.AsyncClient, path: str, *, live: bool = False) -> float:
    headers = {"x-demora-part": "live"} if live else {}
    await http.get(f"/dashboard{path}", headers=headers)  # the first one compiles its template
    times = []
    for _ in range(LOADS):
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        answer = await http.get(f"/dashboard{path}", headers=headers)
        times.append(time.perf_counter() - began)
        answer.raise_for_status()
    return 1000 * sorted(times)[LOADS * 95 // 100]


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


async def _core(process: subprocess.Popen[str], seconds: float) -> float:
    """The share of a core that a process takes in the seconds to come."""
    before, began = _cpu(process.pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (_cpu(process.pid) - before) / (time.monotonic() - began)


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _fill(url: str, share: float) -> None:
    if url.startswith("sqlite"):
        await asyncio.to_thread(_fill_file, url.removeprefix("sqlite:///"), share)
        return
    await laden.fill(url, share)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(laden.ROWS, int(DEAD * share), "04", -_DAY // 24, Status.FAILED.value, Lane.REALTIME.value)
        await connection.execute("update demora.jobs set error = 'TimeoutError: no answer', result = null where status = 5")
        await connection.execute("vacuum analyze demora.jobs")
    finally:
        await connection.close()


def _fill_file(file: str, share: float) -> None:
    db, now = apsw.Connection(file), round(time.time() * 1000)
    indexes = list(
        db.execute("select sql, name from sqlite_master where type = 'index' and tbl_name = 'jobs' and sql is not null")
    )
    with db:
        db.execute("insert or ignore into queues (name) values ('default')")
        for _, name in indexes:  # made anew afterwards, which is quicker
            db.execute(f"drop index {name}")
        for number, prefix, after, status, lane in _KINDS:
            values = (int(number * share), prefix, now + after, status.value, lane.value, "TimeoutError: no answer")
            db.execute(SQLITE_ROWS, values)
        for sql, _ in indexes:
            db.execute(sql)
        db.execute("analyze")
    db.close()
