"""Handlers of every kind for chaos; each writes down when it starts and how it ends, before anybody else knows."""

import asyncio
import functools
import os
import random
import select
import signal
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from demora import Cancel, Context, Demora, Fail, Retry, Snooze
from demora.core.pace import Pace
from demora.proof import HandlerEvent, Recorder

app = Demora()
HISTORY = "DEMORA_CHAOS_HANDLERS"  # names the file that the runs are written to
SPARED = "DEMORA_CHAOS_SPARED"  # set in processes that must not die of a handler
OUTCOMES = {"Snooze": "snooze", "Cancel": "cancel", "Fail": "permanent", "CancelledError": "cancelled"}
OPTIONS: dict[str, Any] = {"timeout": "2s", "retry_delay": "20ms", "retry_cap": "200ms", "max_retries": 6}
PACED = "paced"  # a queue that has a pace
# With a cycle so long that nobody, however busy the machine, lets a whole one pass without a look: that one would be lost.
PACE = Pace(gap=timedelta(seconds=2), burst=80, stagger=timedelta(milliseconds=20), rapid=None)
KINDS: dict[str, float] = {}  # how often producers ask for each

Handler = Callable[[Context], Awaitable[Any]]


def kind(weight: float) -> Callable[[Handler], Handler]:
    """Register a handler under its own name, with its runs on record."""

    def register(handler: Handler) -> Handler:
        KINDS[handler.__name__] = weight
        app.job(handler.__name__, **OPTIONS)(_recorded(handler))
        return handler

    return register


def _recorded(handler: Handler) -> Any:
    async def run(ctx: Context, **payload: Any) -> Any:
        write("start", ctx)
        try:
            result = await handler(ctx)
        except BaseException as problem:
            write("end", ctx, OUTCOMES.get(type(problem).__name__, "error"))
            raise
        write("end", ctx, "ok")
        return result

    return run


@functools.cache
def _recorder() -> Recorder:
    return Recorder(Path(os.environ[HISTORY]))


def write(what: Any, ctx: Context, outcome: str | None = None) -> None:
    now, lease = time.time_ns() // 1_000_000, ctx.job.lease
    _recorder().record(HandlerEvent(what, lease.id, lease.token, now, ctx.attempt, ctx.worker_id, outcome))


@kind(20)
async def quick(ctx: Context) -> str:
    return "ok"


@kind(50)
async def slow(ctx: Context) -> str:
    """Long enough to be killed in, and to be renewed."""
    for tenth in range(5):
        ctx.progress(tenth / 5)
        await asyncio.sleep(random.uniform(0.01, 0.12))
    ctx.log("nearly there")
    return "ok"


@kind(8)
async def failing(ctx: Context) -> str:
    await asyncio.sleep(random.random() / 20)
    if random.random() < 0.5:
        raise ValueError("chance had it so")
    return "ok"


@kind(5)
async def snoozing(ctx: Context) -> str:
    if random.random() < 0.5:
        raise Snooze("100ms")
    return "ok"


@kind(2)
async def hanging(ctx: Context) -> str:
    """Never end in the first attempt."""
    if ctx.attempt == 1:
        await asyncio.Event().wait()
    return "ok"


@kind(0.3)
async def poisonous(ctx: Context) -> str:
    """Kill its own process in the first attempt."""
    if ctx.attempt == 1 and SPARED not in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return "ok"


@kind(1)
async def quitting(ctx: Context) -> str:
    raise Cancel("no need")


@kind(2)
async def hopeless(ctx: Context) -> str:
    raise Fail("no hope")


@kind(2)
async def picky(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise Retry("not yet", after="50ms")
    return "ok"


@app.job("blocking", **OPTIONS)
def blocking(ctx: Context, **payload: Any) -> str:
    """A plain function, on a thread."""
    write("start", ctx)
    time.sleep(random.uniform(0.05, 0.3))
    write("end", ctx, "ok")
    return "ok"


KINDS["blocking"] = 10


@app.job("crunching", process=True, **OPTIONS)
def crunching(ctx: Context, **payload: Any) -> str:
    """In a process of its own, which sometimes dies of it."""
    write("start", ctx)
    time.sleep(random.uniform(0.01, 0.2))
    if ctx.attempt == 1 and random.random() < 0.3:
        os._exit(3)
    write("end", ctx, "ok")
    return "ok"


KINDS["crunching"] = 2


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


if "FAKETIME_TIMESTAMP_FILE" in os.environ:
    time.sleep = _sleep  # type: ignore[assignment]  # libfaketime 0.9.10 lets clock_nanosleep fail while it leaves the monotonic clock alone
