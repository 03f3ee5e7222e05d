"""`python -m tests.chaos --remote-minutes 2`: remote workers, for Python and Node.js, and the `demora serve` that they use.

The service is killed with -9 while claims wait, workers are killed and stopped beyond their leases, and a proxy cuts and
holds their connections. A program adds and cancels jobs over HTTP and writes down each answer. At the end everything must
have run, and the checker holds the whole history to the guarantees.
"""

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from demora import Demora
from demora.core.states import Status
from demora.errors import DemoraError
from demora.proof import Bounds, ClientEvent, HandlerEvent, HistoryEvent, Recorder, WorldEvent, check, read
from tests.chaos import jobs
from tests.chaos.processes import PYTHON, ROOT, Process
from tests.facts import eventually
from tests.servers import postgres, valkey
from tests.servers.ports import free_port
from tests.servers.proxy import Proxy, before

LEASE = 2.0  # seconds
WORKERS = 3
EVERY = (0.3, 0.9)  # seconds between two faults
DRAIN = 60_000  # milliseconds
KINDS = ("quick", "slow", "failing", "picky", "snoozing", "blocking")
NODE_KIND = "node.rest"
_NODE = """
import { appendFileSync } from "node:fs";
function note(kind, { id, token, attempt }, outcome) {
  const event = { source: "handler", kind, job: id, token, at: Date.now(), attempt, ...(outcome && { outcome }) };
  appendFileSync(process.env.DEMORA_CHAOS_HANDLERS, JSON.stringify(event) + "\\n");
}
const handlers = {
  "node.rest": async (payload, { job, signal }) => {
    note("start", job);
    try {
      await sleep(50 + 250 * Math.random(), null, { signal });
    } catch (error) {
      note("end", job, "cancelled");
      throw error;
    }
    note("end", job, "ok");
    return "rested";
  },
"""


class RemoteCampaign:
    """One campaign in a folder. `violations` are sentences about what must not be."""

    def __init__(self, seconds: float, database: str, folder: Path, seed: int) -> None:
        self._seconds, self._folder = seconds, folder
        self._chance, self._asks = random.Random(seed), random.Random(seed + 1)
        self._url = postgres.shared().url if "postgres" in database else f"sqlite:///{folder}/jobs.db"
        self._redis_url = valkey.shared().url if "line" in database else None
        self._schema = f"remote_{seed}"
        self._port = free_port()
        self._clients, self._handlers = folder / "clients.jsonl", folder / "handlers.jsonl"
        self._handlers.touch()
        self._history = Recorder(self._clients)
        self._known: list[str] = []
        self._world: list[HistoryEvent] = []
        self.faults, self.calls, self.violations = Counter[str](), Counter[str](), list[str]()
        self.node = shutil.which("node") is not None

    async def run(self) -> None:
        app = Demora(self._url)
        app.configure(database_schema=self._schema, redis_url=self._redis_url, audit=True)
        async with app, before(f"http://127.0.0.1:{self._port}/") as (proxy, through):
            self._service, self._workers = self._serve(), [self._work(n, through.rstrip("/")) for n in range(WORKERS)]
            keeping = asyncio.ensure_future(self._keep(through.rstrip("/")))
            try:
                async with self._asking():
                    await eventually(self._added, lambda number: number >= 20)  # the service answers
                    await self._trouble(proxy)
                self._happened("healed")
                await self._drain(app)
                self._happened("drained")
            finally:
                keeping.cancel()
                for process in (*self._workers, self._service):
                    process.bury()
            await self._judge(app)

    # Processes

    def _serve(self) -> Process:
        command = (*PYTHON, "demora", "serve", "--no-worker", "--port", str(self._port))
        return Process("service", command, self._environment(), self._folder / "output.log")

    def _work(self, n: int, url: str) -> Process:
        """Start a worker; the last of them is one for Node.js, if that is there."""
        environment, output = self._environment(), self._folder / "output.log"
        if self.node and n == WORKERS - 1:
            program = (ROOT / "examples" / "worker.mjs").read_text().replace("const handlers = {\n", _NODE)
            (self._folder / "worker.mjs").write_text(program)
            return Process("worker", ("node", str(self._folder / "worker.mjs"), url), environment, output)
        command = (*PYTHON, "demora", "worker", "--url", url, "--app", "tests.chaos.jobs:app")
        return Process("worker", command, environment, output)

    async def _keep(self, url: str) -> None:
        """Replace every process that has ended."""
        while True:
            if self._service.code is not None:
                self._service = self._serve()
            for n, worker in enumerate(self._workers):
                if worker.code is not None:
                    self._workers[n] = self._work(n, url)
            await asyncio.sleep(0.05)

    def _environment(self) -> dict[str, str]:
        own = {
            "DEMORA_DATABASE_URL": self._url,
            "DEMORA_DATABASE_SCHEMA": self._schema,
            "DEMORA_AUDIT": "1",
            "DEMORA_LEASE": f"{LEASE:g}s",
            "DEMORA_GRACE": "300ms",
            "DEMORA_CONCURRENCY": "4",
            jobs.HISTORY: str(self._handlers),
            jobs.SPARED: "1",
        }
        return {**os.environ, **own, **({} if self._redis_url is None else {"DEMORA_REDIS_URL": self._redis_url})}

    # Faults

    async def _trouble(self, proxy: Proxy) -> None:
        """Cause every fault, in one random order after the other, until the time is up."""
        until = time.monotonic() + self._seconds
        faults = [self._kill_service, self._kill_worker, self._stop_worker, self._cut, self._hold]
        while time.monotonic() < until:
            self._chance.shuffle(faults)
            for fault in faults:
                await asyncio.sleep(self._chance.uniform(*EVERY))
                await fault(proxy)

    async def _kill_service(self, proxy: Proxy) -> None:
        self._happened("kill -9 of the service")
        self._service.kill()

    async def _kill_worker(self, proxy: Proxy) -> None:
        self._happened("kill -9 of a worker")
        self._chance.choice(self._workers).kill()

    async def _stop_worker(self, proxy: Proxy) -> None:
        self._happened("a worker stands still beyond its lease")
        victim = self._chance.choice(self._workers)
        victim.stop()
        await asyncio.sleep(LEASE * 1.2)
        victim.resume()

    async def _cut(self, proxy: Proxy) -> None:
        self._happened("all connections cut")
        proxy.cut_all()

    async def _hold(self, proxy: Proxy) -> None:
        self._happened("nothing gets through")
        proxy.hold()
        await asyncio.sleep(self._chance.uniform(0.2, LEASE * 1.2))
        proxy.release()
        if self._chance.random() < 0.5:
            proxy.cut_all()

    def _happened(self, what: str) -> None:
        self._world.append(WorldEvent(what, time.time_ns() // 1_000_000))
        if what not in ("healed", "drained"):
            self.faults[what] += 1

    # Calls

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Add and cancel jobs over HTTP during the block, and write down what was answered."""
        async with Demora(f"http://127.0.0.1:{self._port}") as app:
            callers = [asyncio.ensure_future(self._call(app)) for _ in range(3)]
            try:
                yield
            finally:
                for caller in callers:
                    caller.cancel()
                await asyncio.gather(*callers, return_exceptions=True)

    async def _call(self, app: Demora) -> None:
        while True:
            await asyncio.sleep(self._asks.uniform(0.0, 0.1))
            if self._known and self._asks.random() < 0.05:
                await self._cancel(app, self._asks.choice(self._known[-20:]))
            else:
                await self._add(app)

    async def _add(self, app: Demora) -> None:
        kind = NODE_KIND if self.node and self._asks.random() < 0.25 else self._asks.choice(KINDS)
        call, key = secrets.token_hex(6), secrets.token_hex(6)
        about: dict[str, Any] = {"key": key, "request": kind}
        self._write("invoke", "add", call, **about)
        options: dict[str, Any] = {"max_retries": 60, "retry_delay": "20ms", "timeout": "20s"}
        try:
            job = await app.enqueue(kind, {}, key=key, **options)
        except DemoraError as problem:
            self._write("unknown", "add", call, answer=type(problem).__name__, **about)
            return
        self._write("ok", "add", call, jobs=(job.id,), **about)
        self._known.append(job.id)

    async def _cancel(self, app: Demora, id: str) -> None:
        call = secrets.token_hex(6)
        self._write("invoke", "cancel", call, jobs=(id,))
        try:
            status = await app.cancel(id)
        except DemoraError as problem:
            self._write("unknown", "cancel", call, jobs=(id,), answer=type(problem).__name__)
            return
        self._write("ok", "cancel", call, jobs=(id,), answer=status.name)

    async def _added(self) -> int:
        return self.calls["add ok"]

    def _write(self, kind: Any, op: Any, call: str, **about: Any) -> None:
        self.calls[f"{op} {kind}"] += 1
        self._history.record(ClientEvent(kind, op, call, time.time_ns() // 1_000_000, **about))

    # The end

    async def _drain(self, app: Demora) -> None:
        async def left() -> int:
            with contextlib.suppress(DemoraError):
                return sum(queue.ready + queue.delayed + queue.processing for queue in await (await app.open()).queues())
            return -1

        with contextlib.suppress(TimeoutError):  # the checker says what is left
            await eventually(left, lambda number: number == 0, within=DRAIN / 1000)

    async def _judge(self, app: Demora) -> None:
        evidence = await (await app.open()).evidence()
        history = [_without_worker(event) for event in (*read(self._clients, self._handlers), *self._world)]
        found = check(history, evidence, bounds=Bounds(drain=DRAIN))
        self.violations += [violation.explain() for violation in found.violations]
        states = Counter(job.status for job in evidence.jobs)
        self.violations += [f"{number} jobs are {status}" for status, number in states.items() if status not in _ENDS]


def _without_worker(event: HistoryEvent) -> HistoryEvent:
    """A handler knows its worker by a name of its own, and not by the id that the service has given to it."""
    return msgspec.structs.replace(event, worker=None) if isinstance(event, HandlerEvent) else event


_ENDS = {Status.COMPLETED.name, Status.CANCELLED.name}


def main(minutes: float, database: str, folder: Path, seed: int) -> int:
    campaign = RemoteCampaign(minutes * 60, database, folder, seed)
    asyncio.run(campaign.run())
    print(f"{minutes:g} minutes of remote workers on {database}{'' if campaign.node else ', without Node.js'}")
    for counts in (campaign.faults, campaign.calls):
        print("  " + ", ".join(f"{count:,} × {what}" for what, count in sorted(counts.items())))
    for violation in campaign.violations[:5]:
        print(f"  VIOLATION: {violation}", file=sys.stderr)
    print(f"  {len(campaign.violations)} violations", flush=True)
    return 1 if campaign.violations else 0
