"""`python -m tests.chaos --webhooks 10000`: so many jobs with webhooks, a receiver that fails and hangs, workers that die.

Every end must be told at least once under one id, with a signature that the official library accepts, or stand among the
dead letters. Waits between tries are cut short by rescheduling, as an operator may, since they go up to hours.
"""

import asyncio
import contextlib
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from standardwebhooks import Webhook

from demora import Demora
from demora.client.client import Client
from demora.core.outbound.webhook import TYPE
from demora.core.states import Status
from demora.errors import DemoraError
from tests.chaos.processes import PYTHON, Process
from tests.facts import eventually
from tests.servers import postgres, valkey
from tests.servers.receiver import HANG, Received, Receiver, answer

KILLS = 10
WORKERS = 2
FAILING, HANGING = 0.30, 0.01
BATCH = 500
LONGEST = 1800.0  # seconds


class Told(msgspec.Struct):
    """What the receiver saw: requests, and by job the ids of messages and how often it said yes."""

    requests: int = 0
    said: Counter[str] = msgspec.field(default_factory=Counter)
    ids: defaultdict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    accepted: Counter[str] = msgspec.field(default_factory=Counter)


class Deliveries:
    """One campaign in a folder. `violations` are sentences about what must not be."""

    def __init__(self, jobs: int, database: str, folder: Path, seed: int) -> None:
        self._jobs, self._folder, self._chance = jobs, folder, random.Random(seed)
        self._url = postgres.shared().url if "postgres" in database else f"sqlite:///{folder}/jobs.db"
        self._redis_url = valkey.shared().url if "line" in database else None
        self._schema = f"webhooks_{seed}"
        self.told, self.kills, self.violations = Told(), 0, list[str]()
        self.dead = 0
        self.seconds = 0.0

    async def run(self) -> None:
        began = time.monotonic()
        app = Demora(self._url)
        app.configure(outbound_allow=("127.0.0.0/8",), database_schema=self._schema, redis_url=self._redis_url)
        async with app, Receiver(self._receive) as receiver:
            client = await app.open()
            made = await client.webhooks.create_secret()
            self._secret, self._verifier = made.text, Webhook(made.text)
            environment = self._environment()
            async with self._workers(environment) as workers:
                await asyncio.gather(self._produce(client, receiver.url), self._trouble(workers), self._drain(client))
            await self._judge(client)
        self.seconds = time.monotonic() - began

    def _receive(self, request: Received) -> bytes:
        self.told.requests += 1
        message = self._verifier.verify(request.body, request.headers)
        self.told.ids[message["jobId"]].add(request.headers["webhook-id"])
        drawn = self._chance.random()
        if drawn < HANGING:
            self.told.said["hung"] += 1
            return HANG
        if drawn < HANGING + FAILING:
            self.told.said["failed"] += 1
            return answer(self._chance.choice((500, 502, 503, 429, 404)))
        self.told.said["accepted"] += 1
        self.told.accepted[message["jobId"]] += 1
        return answer(204)

    def _environment(self) -> dict[str, str]:
        own = {
            "DEMORA_DATABASE_URL": self._url,
            "DEMORA_DATABASE_SCHEMA": self._schema,
            "DEMORA_OUTBOUND_ALLOW": "127.0.0.0/8",
            "DEMORA_OUTBOUND_TIMEOUT": "2s",
            "DEMORA_OUTBOUND_PER_HOST": "40",
            "DEMORA_LEASE": "2s",
            "DEMORA_CONCURRENCY": "40",
            "DEMORA_LOG_LEVEL": "INFO",
        }
        if self._redis_url is not None:
            own["DEMORA_REDIS_URL"] = self._redis_url
        return {**os.environ, **own}

    @contextlib.asynccontextmanager
    async def _workers(self, environment: dict[str, str]) -> AsyncIterator["list[Process]"]:
        self._start = lambda: Process("worker", (*PYTHON, "demora", "worker"), environment, self._folder / "workers.log")
        workers = [self._start() for _ in range(WORKERS)]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.bury()

    async def _produce(self, client: Client, url: str) -> None:
        for first in range(0, self._jobs, BATCH):
            number = min(BATCH, self._jobs - first)
            asked: tuple[Any, ...] = ("demo.echo", {"n": 1}, {"webhook_url": url})
            sad: tuple[Any, ...] = ("demo.fail", {}, {"webhook_url": url, "max_retries": 0})
            await client.enqueue_many([sad if n % 10 == 0 else asked for n in range(number)])

    async def _trouble(self, workers: "list[Process]") -> None:
        """Kill a worker that sends, ten times, spread over the deliveries."""
        while self.kills < KILLS:
            until = self._jobs * (self.kills + 1) // (KILLS + 2)
            await eventually(lambda: asyncio.sleep(0.01, len(self.told.accepted)), until.__le__, LONGEST)
            victim = self._chance.randrange(WORKERS)
            workers[victim].bury()
            workers[victim] = self._start()
            self.kills += 1

    async def _drain(self, client: Client) -> None:
        """Let what waits for its next try be tried at once, until nothing waits."""
        until = time.monotonic() + LONGEST
        while time.monotonic() < until:
            await asyncio.sleep(1)
            counts = {queue.name: queue.ready + queue.delayed + queue.processing for queue in await client.queues()}
            if len(self.told.ids) >= self._jobs and not sum(counts.values()) and self.kills == KILLS:
                return
            page = await client.find(status=[Status.RETRYING], type=TYPE, limit=200)
            for job in page.jobs:
                with contextlib.suppress(DemoraError):  # it may be claimed by now
                    await client.reschedule(job.id, delay="0s")
        self.violations.append(f"deliveries still wait after {LONGEST:.0f} s")

    async def _judge(self, client: Client) -> None:
        causes, after = Counter[str](), None
        states: dict[str, Status] = {}
        while True:
            page = await client.find(type=TYPE, after=after, limit=200)
            for job in page.jobs:
                causes[str(job.cause)] += 1
                states[str(job.cause)] = job.status
            after = page.next
            if after is None:
                break
        self.dead = sum(status is Status.FAILED for status in states.values())
        jobs = await self._ids(client)
        self._expect(len(jobs) == self._jobs, f"{len(jobs)} jobs of {self._jobs} are there")
        for id in jobs:
            told, given_up = self.told.accepted[id], states.get(id) is Status.FAILED
            self._expect(causes[id] == 1, f"job {id} has {causes[id]} deliveries")
            self._expect(told > 0 or given_up, f"the end of job {id} was neither told nor given up")
            self._expect(len(self.told.ids[id]) == 1, f"job {id} was told of under {len(self.told.ids[id])} ids")
        log = (self._folder / "workers.log").read_text()
        self._expect(self._secret.removeprefix("whsec_") not in log, "the secret stands in the log")

    async def _ids(self, client: Client) -> set[str]:
        found, after = set[str](), None
        for type in ("demo.echo", "demo.fail"):
            while True:
                page = await client.find(type=type, after=after, limit=200)
                found |= {job.id for job in page.jobs}
                after = page.next
                if after is None:
                    break
        return found

    def _expect(self, fact: bool, otherwise: str) -> None:
        if not fact:
            self.violations.append(otherwise)


def main(jobs: int, database: str, folder: Path, seed: int) -> int:
    campaign = Deliveries(jobs, database, folder, seed)
    asyncio.run(campaign.run())
    told = campaign.told
    doubled = sum(count - 1 for count in told.accepted.values())
    print(f"{jobs:,} jobs with webhooks on {database}, {campaign.kills} × kill -9 of a sender, {campaign.seconds:.0f} s")
    print(f"  {told.requests:,} requests: {', '.join(f'{count:,} {name}' for name, count in sorted(told.said.items()))}")
    print(f"  {len(told.accepted):,} ends told, {doubled:,} of them again, {campaign.dead:,} dead letters")
    for violation in campaign.violations[:5]:
        print(f"  VIOLATION: {violation}", file=sys.stderr)
    print(f"  {len(campaign.violations)} violations", flush=True)
    return 1 if campaign.violations else 0
