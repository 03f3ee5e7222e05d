"""`python -m tests.chaos --schedule-minutes 20`: a schedule per second, eight schedulers, and kill -9 all the time.

Each second must be one fire time, each fire time must have one job, and none before its time. Three of the four schedules
keep to `overlap=skip`, `queue` and `replace`, whose jobs two workers run; they die too, so a job may have to wait until its
lease lapses. After the last fault each schedule must fire again. Meanwhile the clock is set forth and back: on SQLite that
of all processes, if libfaketime is there, and on PostgreSQL that of the database (`tests.chaos.clocks`).
"""

import asyncio
import contextlib
import os
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

from demora import Demora
from demora.client.client import Client
from demora.core.schedules.firing import FireOutcome
from demora.proof import check
from tests.chaos.clocks import Clock, DatabaseClock, process_clock
from tests.chaos.processes import PYTHON, Process
from tests.facts import eventually
from tests.servers import postgres, valkey

SCHEDULERS, WORKERS = 8, 2
KILL_EVERY = 1.0  # seconds; a process that starts on a busy machine needs some of them until it fires
WORKER_EVERY = 10  # kills: where no worker runs for most of the time, hardly any job ends, and overlap lets few others fire
JUMPS = (-30, -5, 5, 30)  # seconds; a clock that was set back fires nothing until it reaches the times that it had seen
MISSED_LIMIT = 1000  # fire times: more than pass while a busy machine starts no process
PATIENCE = 120.0  # seconds in which each schedule fires again, also if the clock had been set forth and a worker died then
POLICIES = ("allow", "skip", "queue", "replace")


class Firings:
    """One campaign in a folder. `violations` are sentences about what must not be."""

    def __init__(self, minutes: float, database: str, folder: Path, seed: int) -> None:
        self._seconds, self._folder, self._chance = minutes * 60, folder, random.Random(seed)
        self._url, self._on_postgres = f"sqlite:///{folder}/jobs.db", "postgres" in database
        self._redis_url = valkey.shared().url if "line" in database else None
        self._schema = f"schedules_{seed}"
        self._clock: Clock | None = None
        self.kills, self.jumps, self.fire_times, self.violations = 0, 0, Counter[str](), list[str]()

    async def run(self) -> None:
        await self._make_clock()
        app = Demora(self._url)
        app.configure(database_schema=self._schema, redis_url=self._redis_url)
        async with app:
            client = await app.open()
            for policy in POLICIES:
                await client.add_schedule(
                    policy, "demo.echo", every="1s", overlap=policy, missed="all", missed_limit=MISSED_LIMIT
                )
            processes = [self._start(n) for n in range(SCHEDULERS + WORKERS)]
            turning = asyncio.ensure_future(self._turn_clock())
            try:
                await self._trouble(processes)
                turning.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await turning
                await self._come_to_rest(client)
            finally:
                turning.cancel()
                for process in processes:
                    process.bury()
            await self._judge(client)

    async def _make_clock(self) -> None:
        if self._on_postgres:
            self._clock = clock = await DatabaseClock.make(postgres.shared().url, self._schema)
            self._url = clock.url
        else:
            self._clock = process_clock(self._folder)

    def _start(self, n: int) -> Process:
        kind = "worker" if n < WORKERS else "scheduler"
        own = {"DEMORA_DATABASE_URL": self._url, "DEMORA_DATABASE_SCHEMA": self._schema, "DEMORA_LEASE": "2s"}
        line = {} if self._redis_url is None else {"DEMORA_REDIS_URL": self._redis_url}
        command = (*PYTHON, "demora", kind, "--app", "tests.chaos.jobs:app")
        clock = {} if self._clock is None else self._clock.environment
        return Process(kind, command, {**os.environ, **own, **line, **clock}, self._folder / "output.log")

    async def _trouble(self, processes: list[Process]) -> None:
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            await asyncio.sleep(KILL_EVERY)
            victim = self._victim()
            processes[victim].bury()
            processes[victim] = self._start(victim)
            self.kills += 1

    def _victim(self) -> int:
        """A scheduler, but now and then a worker, each in turn: the others go on meanwhile."""
        workers, rest = divmod(self.kills, WORKER_EVERY)
        return self._chance.randrange(WORKERS, WORKERS + SCHEDULERS) if rest < WORKER_EVERY - 1 else workers % WORKERS

    async def _turn_clock(self) -> None:
        """Set the clock forth or back, and right again."""
        while self._clock is not None:
            for seconds in (self._chance.choice(JUMPS), 0):
                await asyncio.sleep(self._chance.uniform(5, 15))
                await self._clock.set(seconds)
                self.jumps += 1

    async def _come_to_rest(self, client: Client) -> None:
        """Set the clock right, and wait until all fire times up to now are decided and each schedule has fired again."""
        if self._clock is not None:
            await self._clock.set(0)
        now = datetime.now(UTC)
        await asyncio.gather(*(self._fires_again(client, policy, now) for policy in POLICIES))

    async def _fires_again(self, client: Client, policy: str, now: datetime) -> None:
        look = partial(client.schedule, policy)
        before = (await look()).run_count
        try:
            await eventually(
                look, lambda found: found.progress.decided_to >= now and found.run_count > before, within=PATIENCE
            )
        except TimeoutError:
            self.violations.append(f"{policy}: did not fire again within {PATIENCE:.0f} s after the last fault")

    async def _judge(self, client: Client) -> None:
        findings = check([], await client.evidence())
        self.violations += [violation.explain() for violation in findings.violations if violation.rule == "I11"]
        for policy in POLICIES:
            fire_times = sorted(await client.fire_records(policy, limit=10_000), key=lambda fire_time: fire_time.slot_at)
            self.fire_times.update(f"{policy} {fire_time.outcome.value}" for fire_time in fire_times)
            gaps = {(later.slot_at - earlier.slot_at).total_seconds() for earlier, later in pairwise(fire_times)}
            waits = policy in ("queue", "replace")  # whose last fire time may wait without a record
            self._expect(waits or gaps <= {1.0}, f"{policy}: a second without a fire time: {sorted(gaps)}")
            self._expect(len(fire_times) >= self._seconds * 0.8, f"{policy}: only {len(fire_times)} fire times were decided")
            late = sum(fire_time.outcome is FireOutcome.MISSED for fire_time in fire_times)
            self._expect(not late, f"{policy}: {late} fire times were missed, although the policy is to fire all")

    def _expect(self, fact: bool, otherwise: str) -> None:
        if not fact:
            self.violations.append(otherwise)


def main(minutes: float, database: str, folder: Path, seed: int) -> int:
    campaign = Firings(minutes, database, folder, seed)
    asyncio.run(campaign.run())
    fire_times = ", ".join(f"{count:,} {what}" for what, count in sorted(campaign.fire_times.items()))
    faults = f"{campaign.kills} × kill -9, the clock set {campaign.jumps} times"
    print(f"{minutes} minutes of {len(POLICIES)} schedules per second on {database}, {faults}")
    print(f"  {fire_times}")
    for violation in campaign.violations[:5]:
        print(f"  VIOLATION: {violation}", file=sys.stderr)
    print(f"  {len(campaign.violations)} violations", flush=True)
    return 1 if campaign.violations else 0
