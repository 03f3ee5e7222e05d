"""`python -m tests.chaos.producer`: asks for jobs through the public client and over HTTP, and writes down the answers.

With `--jobs N` it adds so many and exits; otherwise it goes on until SIGTERM. It may be killed at any moment: a call that
was written down and never answered is one whose outcome is unknown.
"""

import argparse
import asyncio
import itertools
import os
import random
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from demora.client.client import Client
from demora.core.states import Status
from demora.errors import DemoraError, StoreBusy, StoreError
from demora.proof import ClientEvent, Recorder
from tests.chaos.jobs import KINDS, PACED, app

HISTORY, SERVICE, CANARY = "DEMORA_CHAOS_CLIENTS", "DEMORA_CHAOS_SERVICE", "DEMORA_CHAOS_CANARY"
NOTHING = "nothing was written"  # how demora ends what it says of a write that did not come about
TASKS = 4
PAUSE = 0.2  # seconds between two asked_for of a task, at most
MOST_KNOWN = 300
DELAYS = (None, None, None, 50, 300, 1000)  # milliseconds
Answer = tuple[tuple[str, ...], str | None]  # the jobs, and the status if there is one


class Unknown(Exception):
    """The call may have been carried out."""


class Refused(Exception):
    """The call was not carried out; says why."""


class Caller:
    """Asks for things at random."""

    def __init__(self, client: Client, recorder: Recorder, http: httpx.AsyncClient | None) -> None:
        self._client, self._recorder, self._http = client, recorder, http
        self._name, self._numbers = secrets.token_hex(4), itertools.count(1)
        self._known: list[str] = []

    async def anything(self) -> None:
        adds = (self.add, self._add_many, self._add_with_key, self._add_unique, self._over_http, self.add_paced)
        asked_for = (*adds, self._cancel, self._retry, self._move)
        await random.choices(asked_for, (50, 5, 8, 8, 25 if self._http else 0, 2, 4, 6, 3))[0]()

    async def add(self) -> None:
        job, due = self._make()
        await self._ask("add", (job.id,), lambda: self._add([job]), due_at=due)

    async def _add_many(self) -> None:
        jobs = [self._make()[0] for _ in range(random.randint(2, 8))]
        await self._ask("add", tuple(job.id for job in jobs), lambda: self._add(jobs))

    async def _add_with_key(self) -> None:
        """Ask again under the same key, as callers do who are not sure; sometimes for something else."""
        key = secrets.token_hex(6)
        for request in random.choice((("a",), ("a", "a"), ("a", "b"), ("a", "a", "a"))):
            job = self._client.make("quick", _payload(request=request), key=key)
            await self._ask("add", (job.id,), lambda job=job: self._add([job]), key=key, request=request)  # type: ignore[misc]

    async def _add_unique(self) -> None:
        """A job that others want too, and that is worth nothing after a while."""
        asked = {"unique": f"u{random.randrange(4)}", "if_waiting": random.choice(("keep", "replace"))}
        timing = random.choice(({}, {"delay": "400ms"}, {"delay": "100ms", "expires_in": "300ms"}, {"expires_in": "50ms"}))
        job = self._client.make("quick", _payload(), **asked, **timing)
        await self._ask("add", (job.id,), lambda: self._add([job]))

    async def add_paced(self) -> None:
        """Jobs that come due together in a queue that lets few of them go at a time; sometimes enough for a backlog."""
        delay = f"{random.choice(DELAYS[3:])}ms"
        jobs = [
            self._client.make(_kind(), _payload(), queue=PACED, delay=delay) for _ in range(random.choice((1, 3, 8, 50)))
        ]
        await self._ask("add", tuple(job.id for job in jobs), lambda: self._add(jobs))

    async def _over_http(self) -> None:
        """With a key, so that a call without an answer is made again until there is one."""
        key, kind = secrets.token_hex(6), _kind()
        body = {"type": kind, "payload": _payload(), "delay": random.choice(DELAYS), "idempotencyKey": key}
        for _ in range(6):
            if await self._ask("add", (), lambda: self._post(body), key=key, request=kind):
                return
            await asyncio.sleep(random.random())

    async def _cancel(self) -> None:
        await self._about_one("cancel", lambda id: self._client.cancel(id))

    async def _retry(self) -> None:
        await self._about_one("retry", lambda id: self._client.retry(id))

    async def _move(self) -> None:
        await self._about_one("reschedule", lambda id: self._client.reschedule(id, delay=random.choice(("0ms", "400ms"))))

    async def _about_one(self, op: Any, asked: Callable[[str], Awaitable[Any]]) -> None:
        if self._known:
            id = random.choice(self._known)
            await self._ask(op, (id,), lambda: _status(id, asked(id)))

    def _make(self) -> tuple[Any, int | None]:
        """A job, and the time that was asked for, if one was."""
        delay = random.choice(DELAYS)
        due = None if delay is None else time.time_ns() // 1_000_000 + delay
        at = None if due is None else datetime.fromtimestamp(due / 1000, UTC)
        return self._client.make(_kind(), _payload(), at=at), due

    async def _add(self, jobs: list[Any]) -> Answer:
        return tuple(job.id for job, _ in await self._client.add(jobs)), None

    async def _post(self, body: dict[str, Any]) -> Answer:
        assert self._http is not None
        try:
            reply = await self._http.post("/api/v1/jobs", json=body)
        except httpx.ConnectError as problem:
            raise Refused("no service") from problem
        except httpx.HTTPError as problem:
            raise Unknown from problem
        if reply.status_code >= 500:
            raise Unknown
        if reply.status_code != 201:
            raise Refused(str(reply.status_code))
        return (reply.json()["id"],), None

    async def _ask(self, op: Any, ids: tuple[str, ...], ask: Callable[[], Awaitable[Answer]], **about: Any) -> bool:
        """Ask, and write down both the asked and the answer; True if it was carried out."""
        call = f"{self._name}-{next(self._numbers)}"
        self._write("invoke", op, call, jobs=ids, **about)
        try:
            jobs, answer = await ask()
        except (Unknown, StoreError, Refused, DemoraError) as problem:
            kind, why = _failure(problem)
            self._write(kind, op, call, jobs=ids, answer=why, **about)
            return False
        self._write("ok", op, call, jobs=jobs, answer=answer, **about)
        if op == "add":
            self._known = [*self._known[-MOST_KNOWN:], *jobs]
        return True

    def _write(self, kind: Any, op: Any, call: str, **about: Any) -> None:
        self._recorder.record(ClientEvent(kind, op, call, time.time_ns() // 1_000_000, **about))


def _failure(problem: Exception) -> tuple[str, str]:
    match problem:
        case StoreBusy():
            return "fail", "StoreBusy"
        case StoreError() if str(problem).endswith(NOTHING):
            return "fail", str(problem)
        case Unknown() | StoreError():
            return "unknown", str(problem)
        case Refused():
            return "fail", str(problem)
        case _:
            return "fail", type(problem).__name__


async def _status(id: str, asked: Awaitable[Any]) -> Answer:
    answer = await asked
    return (id,), answer.name if isinstance(answer, Status) else None


def _kind() -> str:
    return random.choices(list(KINDS), list(KINDS.values()))[0]


def _payload(**more: str) -> dict[str, str]:
    return {"secret": os.environ[CANARY], **more}


async def main(jobs: int | None) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    recorder, service = Recorder(Path(os.environ[HISTORY])), os.environ.get(SERVICE)
    async with app, httpx.AsyncClient(base_url=service or "http://127.0.0.1", timeout=5) as http:
        caller = Caller(await app.open(), recorder, http if service else None)
        print(f"producer {socket.gethostname()}-{os.getpid()}- started", flush=True)
        if jobs is not None:
            await asyncio.gather(*(_several(caller, share) for share in _shares(jobs)))
        else:
            await caller.add_paced()  # chance may have it so that nobody does for a while
            await asyncio.gather(*(_until(stopped, caller) for _ in range(TASKS)))


async def _several(caller: Caller, jobs: int) -> None:
    for _ in range(jobs):
        await caller.add()


async def _until(stopped: asyncio.Event, caller: Caller) -> None:
    while not stopped.is_set():
        await caller.anything()
        await asyncio.sleep(random.random() * PAUSE)


def _shares(jobs: int) -> list[int]:
    return [len(range(n, jobs, TASKS)) for n in range(TASKS)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.producer", description=__doc__)
    parser.add_argument("--jobs", type=int, help="add so many and exit")
    asyncio.run(main(parser.parse_args().jobs))
