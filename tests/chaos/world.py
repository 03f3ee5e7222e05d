"""A world: one database, the processes on it, who keeps them alive, and how all ends: healed, drained and judged."""

import asyncio
import os
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from demora import Demora
from demora.engines import postgres as postgres_engine
from demora.errors import StoreError
from demora.proof import WorldEvent
from tests.chaos import jobs, producer
from tests.chaos.judging import Result, judge
from tests.chaos.lines import LineServer
from tests.chaos.outages import CONNECTIONS, Postgres
from tests.chaos.processes import PRODUCER, PYTHON, SCHEDULER, WORKER, Process, holds_write_lock
from tests.chaos.watch import Watch, boot_ms, wall_ms
from tests.servers.ports import free_port

LONGEST_DRAIN = 60.0  # seconds
FAR = 20_000  # milliseconds: due so much later only because a clock had jumped
STUCK = "drains and exits"  # what a worker says that leaves because of handlers that did not end
SCHEMA = Path(postgres_engine.__file__).parent / "schema"
TEND = 0.04  # seconds between looks
MIGRATED = 120.0  # seconds: it waits for a core as long as the machine's other work lets it
LAST_WORDS = 40  # lines of output that a trouble shows, since the file itself may be gone when it is read


class World:
    """`wanted` says how many processes of each kind are kept alive; what ends by itself is replaced."""

    def __init__(
        self,
        name: str,
        folder: Path,
        seed: str,
        *,
        disk: Path | None = None,
        postgres: Postgres | None = None,
        line: LineServer | None = None,
        **environment: str,
    ) -> None:
        self.name, self.folder, self.chance = name, folder, random.Random(seed)
        self.database = (disk or folder) / "jobs.db"
        self.disk, self.postgres, self.line = disk, postgres, line
        self.environment, self._port = environment, free_port()
        self.lease = self.chance.choice((800, 1000, 1200) if postgres else (300, 400, 500))
        self.clients, self.notes, self.output = folder / "clients.jsonl", folder / "handlers.jsonl", folder / "output"
        self.canary = f"canary{secrets.token_hex(8)}"
        self.wanted: Counter[str] = Counter()
        self.processes: list[Process] = []
        self.fired: Counter[str] = Counter()
        self.besides: Counter[str] = Counter()  # what else is worth telling
        self.events: list[WorldEvent] = []
        self.troubles: list[str] = []
        self._traces = self._started = 0
        self.calm = False

    # Its beginning and its end

    @asynccontextmanager
    async def alive(self) -> AsyncIterator["World"]:
        """Make the database and tend the processes; afterwards none of them is left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.output.mkdir(exist_ok=True)
        for path in (self.clients, self.notes):
            path.touch()
        async with AsyncExitStack() as servers:
            for server in filter(None, (self.postgres, self.line)):
                await servers.enter_async_context(server.running())
            try:
                await self._migrate_twice()
                async with self._watched():
                    yield self
            finally:
                self.bury()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        app = Demora(self.postgres.url if self.postgres else self.url)
        app.configure(audit=True)
        async with app:
            self.app, client = app, await app.open()
            await client.set_pace(jobs.PACED, jobs.PACE, by="chaos")
            self.watch = Watch(client.store.audit, self.notes, wall_ms if self.postgres else boot_ms)
            tending = asyncio.ensure_future(self._tend())
            try:
                yield
            finally:
                await _finish(tending)

    async def heal(self) -> None:
        """No more faults and no more asked_for, enough workers, and time for all to end."""
        self.wanted["producer"] = self.wanted["service"] = 0
        for process in self.processes:
            if process.code is None and process.kind == "producer" and not process.doomed:
                process.terminate()
        await asyncio.gather(*(p.ended(15) for p in self.processes if p.kind == "producer"))
        self.calm = True
        self.wanted["worker"] = max(self.wanted["worker"], 2)
        self.happened("healed", counted=False)
        await self._drain()
        self.happened("drained", counted=False)

    async def judge(self) -> Result:
        client = await self.app.open()
        await self.watch.look()
        evidence = await client.evidence()
        self.fired["kill -9 of a worker in mid-job"] += self.watch.kills_in_mid_job()
        return await asyncio.to_thread(judge, self, evidence)

    # Processes

    def start_worker(self, *, under: Sequence[str] = (), **environment: str) -> Process:
        """One more worker; under another command or with more in its environment it is nobody's to replace."""
        if not under and not environment:
            return self._start("worker", WORKER, (), {})
        return self._start("odd worker", WORKER, under, {jobs.SPARED: "1", **environment})

    def start_producer(self, jobs: int | None = None, **environment: str) -> Process:
        more = () if jobs is None else ("--jobs", str(jobs))
        return self._start("producer" if jobs is None else "writer", (*PRODUCER, *more), (), environment)

    def start_scheduler(self) -> Process:
        return self._start("scheduler", SCHEDULER, (), {})

    def start_brief_scheduler(self) -> Process:
        """One that keeps ended jobs for a second only."""
        brief = {f"DEMORA_KEEP_{kind}": "1s" for kind in ("COMPLETED", "CANCELLED", "FAILED")}
        return self._start("brief scheduler", SCHEDULER, (), brief)

    def start_service(self) -> Process:
        command = (*PYTHON, "demora", "serve", "--app", "tests.chaos.jobs:app", "--port", str(self._port))
        return self._start("service", command, (), {})

    def of(self, *kinds: str) -> list[Process]:
        return [process for process in self.processes if process.kind in kinds and process.free]

    async def busy(self, *kinds: str, within: float = 5) -> Process | None:
        """Some process in which a handler is at work, while there is another that could take over from it."""
        until = time.monotonic() + within
        while time.monotonic() < until:
            at_work = [process for process in self.of(*kinds) if self.watch.runs(process.pid)]
            victim = self.chance.choice(at_work) if at_work else None
            if victim is not None and any(self._is_able(other) for other in self.processes if other is not victim):
                return victim
            await asyncio.sleep(TEND)
        return None

    def _is_able(self, process: Process) -> bool:
        pid = process.pid
        alive = process.code is None and not process.taken and pid not in self.watch.killed
        return alive and process.kind in ("worker", "odd worker", "service") and self.watch.has_run(pid)

    def kill(self, process: Process) -> None:
        self.watch.note_kill(process.pid)
        process.kill()

    def happened(self, fault: str, *, counted: bool = True) -> None:
        self.events.append(WorldEvent(fault, time.time_ns() // 1_000_000))
        if counted:
            self.fired[fault] += 1

    def all_said(self) -> str:
        """Everything that the processes wrote."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.output.iterdir()))

    def is_locked_by(self, process: Process) -> bool:
        """Whether nobody can write before this process goes on."""
        return self.postgres is None and holds_write_lock(process.pid, self.database)

    def new_trace(self) -> Path:
        self._traces += 1
        return self.folder / f"trace-{self._traces}"

    def bury(self) -> None:
        for process in self.processes:
            process.bury()

    @property
    def url(self) -> str:
        """The database as the processes reach it."""
        return self.postgres.proxied if self.postgres else f"sqlite:///{self.database}"

    def _start(self, kind: str, command: Sequence[str], under: Sequence[str], more: dict[str, str]) -> Process:
        environment = {
            **os.environ,
            "DEMORA_DATABASE_URL": self.url,
            **({"DEMORA_REDIS_URL": self.line.url} if self.line else {}),
            "DEMORA_DATABASE_CONNECTIONS": str(CONNECTIONS),
            "DEMORA_AUDIT": "1",
            "DEMORA_LEASE": f"{self.lease}ms",
            "DEMORA_GRACE": "300ms",
            "DEMORA_CONCURRENCY": "4",
            jobs.HISTORY: str(self.notes),
            producer.HISTORY: str(self.clients),
            producer.CANARY: self.canary,
            **({producer.SERVICE: f"http://127.0.0.1:{self._port}"} if self.wanted["service"] else {}),
            **self.environment,
            **more,
        }
        self._started += 1
        output = self.output / f"{self._started:04d}-{kind.replace(' ', '-')}"
        process = Process(kind, command, environment, output, under=under)
        self.processes.append(process)
        return process

    async def _migrate_twice(self) -> None:
        """The first to make the database dies between two steps of the schema; the second finishes."""
        steps = len(list(SCHEMA.glob("*.sql"))) if self.postgres else 2
        for point in (f"schema.migrated:{self.chance.randint(1, steps)}", ""):
            environment = {"DEMORA_CRASH": point} if point else {}
            made = self._start("maker", (sys.executable, "-m", "demora", "migrate"), (), environment)
            code = await made.ended(MIGRATED)
            if point and code == -9:
                self.happened("crash at schema.migrated")
            elif point or code != 0:
                self.troubles.append(f"demora migrate with DEMORA_CRASH={point!r} ended with {code}\n{_last_words(made)}")

    # Keeping it alive

    async def _tend(self) -> None:
        while True:
            with suppress(StoreError):
                await self.watch.look()
            self._replace()
            await asyncio.sleep(TEND)

    def _replace(self) -> None:
        for process in [p for p in self.processes if p.code is not None]:
            self.processes.remove(process)
            self._note_end(process)
        start = {"worker": self.start_worker, "service": self.start_service, "producer": self.start_producer}
        start["scheduler"] = self.start_scheduler
        for kind, number in self.wanted.items():
            for _ in range(number - sum(p.kind == kind and not p.doomed for p in self.processes)):
                start[kind]()

    def _note_end(self, process: Process) -> None:
        if process.doomed or process.kind in ("odd worker", "maker"):
            return
        if process.code == -9:
            self.watch.note_kill(process.pid)
            self.happened("process killed by its own handler")
        elif process.code == 1 and STUCK in process.said:
            self.happened("worker left with half of its slots stuck")
        elif process.code != 0 and not self._may_give_up(process):
            self.troubles.append(f"a {process.kind} ended by itself with {process.code}\n{_last_words(process)}")

    def _may_give_up(self, process: Process) -> bool:
        """On a full disk, or where it finds no server to begin with; another one is started."""
        return self.disk is not None or (self.postgres is not None and "started" not in process.said)

    async def _drain(self) -> None:
        client, until = await self.app.open(), time.monotonic() + LONGEST_DRAIN
        await self._bring_back()
        while time.monotonic() < until:
            if all(queue.ready + queue.delayed + queue.processing == 0 for queue in await client.queues()):
                return
            await asyncio.sleep(TEND)

    async def _bring_back(self) -> None:
        """Jobs that a jumping clock sent into the far future are called back, as an operator would."""
        if "FAKETIME_TIMESTAMP_FILE" not in self.environment:
            return
        client = await self.app.open()
        evidence = await client.evidence()
        for job in evidence.jobs:
            if job.due_at > evidence.now + FAR and job.completed_at is None and job.status != "PROCESSING":
                await client.reschedule(job.id, delay="0ms")


def _last_words(process: Process) -> str:
    return "".join(process.said.splitlines(keepends=True)[-LAST_WORDS:])


async def _finish(task: "asyncio.Future[None]") -> None:
    """End a task; raises what it raised."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
