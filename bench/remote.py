"""(x) Remote workers: jobs per second that one service process serves by batches of 100, and what 500 idle workers cost it.

The load is this process: workers that claim, run nothing and settle, on connections of their own.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.databases import Databases
from bench.http import DEMORA
from demora import Demora

BATCH, WORKERS, IDLE, IDLE_SECONDS = 100, 4, 500, 30.0


async def measure(on: Databases, jobs: int) -> dict[str, float]:
    """Return the rate of jobs, and the share of a core that idle workers cost."""
    async with on.new() as url, _service(url, on.redis_url or "") as (process, port):
        async with Demora(url, on.redis_url) as app:
            for _ in range(jobs // 1000):
                await app.enqueue_many([("bench.noop", {"to": "user@example.com"})] * 1000)
        began, used = time.perf_counter(), _cpu_seconds(process)
        done = sum(await asyncio.gather(*(_drain(port) for _ in range(WORKERS))))
        rate, used = done / (time.perf_counter() - began), _cpu_seconds(process) - used
        idle = [asyncio.ensure_future(_wait(port)) for _ in range(IDLE)]
        await asyncio.sleep(5)  # until all are registered and wait
        before = _cpu_seconds(process)
        await asyncio.sleep(IDLE_SECONDS)
        share = (_cpu_seconds(process) - before) / IDLE_SECONDS
        for task in idle:
            task.cancel()
        await asyncio.gather(*idle, return_exceptions=True)
    figures = {"remote: jobs/s": rate, "remote: jobs per CPU second of the service": done / used}
    return figures | {"500 idle remote workers, % of a core": 100 * share}


class _Worker:
    """A worker on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._id = reader, writer, ""

    async def register(self) -> None:
        asked = {"name": "bench", "types": ["bench.noop"], "slots": BATCH}
        self._id = "/" + (await self.ask("", asked))["workerId"]

    async def ask(self, verb: str, body: Any) -> Any:
        text = json.dumps(body).encode()
        head = f"POST /api/v1/workers{self._id}{verb} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(text)}\r\n\r\n".encode() + text)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        size = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        said = json.loads(await self._reader.readexactly(size))
        if answer[9] != ord("2"):
            raise RuntimeError(f"the service answered {said}")
        return said


async def _drain(port: int) -> int:
    """Claim and settle until there is nothing left. Returns the number of jobs."""
    worker, done = await _connected(port), 0
    while jobs := (await worker.ask("/claim", {"limit": BATCH}))["jobs"]:
        ends = [{"id": job["id"], "token": job["token"], "outcome": "completed"} for job in jobs]
        settled = (await worker.ask("/settle", {"jobs": ends}))["jobs"]
        done += sum(one["status"] == "COMPLETED" for one in settled)
    return done


async def _wait(port: int) -> None:
    worker = await _connected(port)
    while True:
        await worker.ask("/claim", {"limit": BATCH, "wait": 30_000})


async def _connected(port: int) -> _Worker:
    worker = _Worker(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
    await worker.register()
    return worker


@asynccontextmanager
async def _service(url: str, redis_url: str) -> "AsyncIterator[tuple[subprocess.Popen[str], int]]":
    command = [sys.executable, "-c", "import sys, uvloop" + DEMORA, url, redis_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(await asyncio.to_thread(process.stdout.readline))
        finally:
            process.terminate()
            process.wait()


def _cpu_seconds(process: "subprocess.Popen[str]") -> float:
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
