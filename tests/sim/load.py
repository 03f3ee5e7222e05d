"""What the simulated applications do: handlers of every kind, and clients that ask for all sorts of things."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

from demora import Cancel, Context, Demora, Fail, Retry, Snooze
from demora.errors import DemoraError
from tests.sim.faults import Unknown
from tests.sim.history import Recorder
from tests.sim.loop import OWNER, Killed
from tests.sim.world import World

QUEUES = ("default", "mail", "reports")
PRIORITIES = ("CRITICAL", "HIGH", "NORMAL", "LOW")
HOOK = "https://hooks.example/{}"
APART = "apart"
KINDS = {"quick": 40, "slow": 8, "failing": 15, "snoozing": 6, "endless": 2, "poisonous": 2}  # and how often each occurs
KINDS |= {"quitting": 3, "hopeless": 3, "picky": 4, APART: 8}
DEADLY = ("poisonous", APART)  # these end processes
UNKNOWN = "unknown"  # to every application


def register(app: Demora, world: World, recorder: Recorder) -> None:
    """Handlers of every kind; each writes down when it starts and how it ends, or the process does that it is in."""
    for kind in KINDS:
        if kind != APART:
            app.job(kind, timeout="20s", jitter=0.5)(_recorded(globals()[kind], world, recorder))
    app.job(APART, timeout="20s", jitter=0.5, process=True)(_begun(apart, world, recorder))


def _recorded(handler: Callable[[Context, World], Awaitable[Any]], world: World, recorder: Recorder) -> Any:
    async def run(ctx: Context, **payload: Any) -> Any:
        recorder.started(ctx)
        try:
            result = await handler(ctx, world)
        except Killed:
            raise
        except BaseException as problem:
            recorder.ended(ctx, type(problem).__name__)
            raise
        recorder.ended(ctx, "returned")
        return result

    return run


def _begun(handler: Callable[[Context, World], Awaitable[Any]], world: World, recorder: Recorder) -> Any:
    """For a process of its own, which writes down how it ends when its worker can know."""

    async def run(ctx: Context, **payload: Any) -> Any:
        recorder.started(ctx)
        return await handler(ctx, world)

    return run


async def quick(ctx: Context, world: World) -> str:
    return "ok"


async def slow(ctx: Context, world: World) -> str:
    for tenth in range(10):
        ctx.progress(tenth / 10)
        await asyncio.sleep(world.random.random())
    ctx.log("nearly there")
    return "ok"


async def failing(ctx: Context, world: World) -> str:
    await asyncio.sleep(world.random.random() / 10)
    if world.random.random() < 0.6:
        raise ValueError("chance had it so")
    return "ok"


async def snoozing(ctx: Context, world: World) -> str:
    if world.random.random() < 0.5:
        raise Snooze("700ms")
    return "ok"


async def endless(ctx: Context, world: World) -> str:
    if ctx.attempt < 3:
        await asyncio.Event().wait()
    return "ok"


async def poisonous(ctx: Context, world: World) -> str:
    """Kill its own process in the first attempts."""
    await asyncio.sleep(world.random.random() / 10)
    if ctx.attempt < 3:
        world.happened("worker killed by its handler")
        world.kill(OWNER.get())
        raise Killed
    return "ok"


async def quitting(ctx: Context, world: World) -> str:
    raise Cancel("no need")


async def hopeless(ctx: Context, world: World) -> str:
    raise Fail("no hope")


async def picky(ctx: Context, world: World) -> str:
    if ctx.attempt == 1:
        raise Retry("not yet", after="3s")
    return "ok"


async def apart(ctx: Context, world: World) -> str:
    """In a process of its own: everything that a handler may do, and in all of it the process may die."""
    for half in range(2):
        ctx.progress(half / 2)
        await asyncio.sleep(world.random.random() / 2)
    ctx.log("nearly there")
    ways = (
        None,
        ValueError("chance had it so"),
        Retry("not yet", after="1s"),
        Snooze("700ms"),
        Cancel("no need"),
        Fail("no hope"),
    )
    problem = world.random.choices(ways, (80, 8, 3, 3, 3, 3))[0]
    if problem is not None:
        raise problem
    return "ok"


class Caller:
    """A simulated application: adds so many jobs, and now and then cancels, retries, moves, pauses."""

    def __init__(self, app: Demora, world: World, recorder: Recorder, jobs: int, *, calm: bool = False) -> None:
        self._app, self._world, self._recorder, self._left = app, world, recorder, jobs
        self._chance: random.Random = world.random
        self._keys = itertools.count()
        self._asked_again: list[str] = []
        self._unknown = 1 if self._chance.random() < 0.1 else 0  # seldom: they take an hour to end
        self._weights = [0 if calm and kind in DEADLY else weight for kind, weight in KINDS.items()]
        self._owner = OWNER.get()
        self._additions = (self._add, self._add_with_key, self._add_unique)

    async def run(self) -> None:
        while self._left > 0:
            await asyncio.sleep(self._chance.random() * 0.5)
            verb = self._chance.choices(
                (*self._additions, self._cancel, self._retry, self._move, self._delete, self._pause),
                (50, 12, 10, 12, 12, 6, 2, 2),
            )[0]
            await verb()

    async def _add(self) -> None:
        number = min(self._chance.choice((1, 1, 1, 2, 5, 20)), self._left)
        self._left -= number
        client = await self._app.open()
        jobs = [self._make(client) for _ in range(number)]
        await self._ask("add", [job.id for job in jobs], lambda: client.add(jobs))

    def _make(self, client: Any, **more: Any) -> Any:
        kind = self._chance.choices((*KINDS, UNKNOWN), (*self._weights, self._unknown))[0]
        return client.make(kind, {"n": self._chance.randrange(100)}, **self._options(), **more)

    def _options(self) -> dict[str, Any]:
        delay = self._chance.choices(("0ms", "300ms", "5s", "40s"), (60, 20, 15, 5))[0]
        return {
            "queue": self._chance.choice(QUEUES),
            "priority": self._chance.choice(PRIORITIES),
            "delay": None if delay == "0ms" else delay,
            "max_retries": self._chance.choice((0, 1, 3)),
            "retry_delay": self._chance.choice(("100ms", "1s")),
            "expires_in": self._chance.choices((None, "41s", "60s"), (80, 10, 10))[0],
            "webhook_url": HOOK.format(self._chance.randrange(20)) if self._chance.random() < 0.2 else None,
            "webhook_on_cancel": self._chance.random() < 0.5,
        }

    async def _add_with_key(self) -> None:
        """One request, made up to three times by impatient callers."""
        self._left -= 1
        client = await self._app.open()
        key = f"{self._owner}-{next(self._keys)}"
        options = self._options()
        for _ in range(self._chance.choice((1, 2, 3))):
            job = client.make("quick", {"key": key}, **options, key=key)
            await self._ask("add", [job.id], lambda job=job: client.add([job]), key=key)

    async def _add_unique(self) -> None:
        """One of three jobs that everybody wants, soon or with a short time to live."""
        self._left -= 1
        client = await self._app.open()
        asked = {"unique": f"u{self._chance.randrange(3)}", "if_waiting": self._chance.choice(("keep", "replace"))}
        timing = self._chance.choice(({}, {"delay": "3s"}, {"delay": "300ms", "expires_in": "900ms"}, {"expires_in": "1s"}))
        job = client.make("quick", {"n": 1}, queue=self._chance.choice(QUEUES), **asked, **timing)
        await self._ask("add", [job.id], lambda: client.add([job]))

    async def _cancel(self) -> None:
        await self._about_one("cancel", lambda client, id: client.cancel(id))

    async def _retry(self) -> None:
        """One of all, or one that was asked for before: so that some come to a third generation."""
        known = self._asked_again if self._asked_again and self._chance.random() < 0.5 else self._recorder.known
        if known:
            client, id = await self._app.open(), self._chance.choice(known)
            self._asked_again.append(id)
            await self._ask("retry", [id], lambda: client.retry(id))

    async def _move(self) -> None:
        delay = self._chance.choice(("0ms", "2s", "20s"))
        await self._about_one("reschedule", lambda client, id: client.reschedule(id, delay=delay))

    async def _delete(self) -> None:
        await self._about_one("delete", lambda client, id: client.delete(id))

    async def _pause(self) -> None:
        client, queue = await self._app.open(), self._chance.choice(QUEUES)
        for change in (client.pause, client.resume):
            await _insist(lambda change=change: change(queue))
            await asyncio.sleep(self._chance.random() * 2)
        self._world.happened("queue paused")

    async def _about_one(self, op: str, ask: Callable[[Any, str], Awaitable[Any]]) -> None:
        if self._recorder.known:
            client, id = await self._app.open(), self._chance.choice(self._recorder.known)
            await self._ask(op, [id], lambda: ask(client, id))

    async def _ask(self, op: str, ids: list[str], ask: Callable[[], Awaitable[Any]], key: str | None = None) -> None:
        call = self._recorder.invoked(op, ids, key)
        try:
            answer = await ask()
        except Unknown:
            self._recorder.unknown(call)
        except DemoraError as problem:
            self._recorder.failed(call, type(problem).__name__)
        else:
            self._recorder.answered(call, answer)


async def _insist(ask: Callable[[], Awaitable[Any]]) -> None:
    while True:
        try:
            await ask()
            return
        except DemoraError:
            await asyncio.sleep(0.2)
