"""Handlers that write down what happens to them, for tests with real processes."""

import asyncio
import os
import time
from pathlib import Path

from demora import Context, Demora

app = Demora()
JOURNAL = "DEMORA_TEST_JOURNAL"


def note(event: str, ctx: Context) -> None:
    """Add a line in one write, so that a kill leaves whole lines."""
    line = f"{event} {ctx.id} {ctx.attempt} {os.getpid()} {time.time():.6f}\n"
    with Path(os.environ[JOURNAL]).open("a") as journal:
        journal.write(line)


@app.job("hang")
async def hang(ctx: Context, times: int = 1) -> str:
    """Never end in the first `times` attempts."""
    note("begin", ctx)
    if ctx.attempt <= times:
        await asyncio.Event().wait()
    note("end", ctx)
    return "ok"


@app.job("quick")
async def quick(ctx: Context) -> str:
    note("begin", ctx)
    note("end", ctx)
    return "ok"


if os.environ.get("DEMORA_TEST_TICK"):
    app.schedule("tick", "tick", every="1s")


@app.job("tick")
async def tick(ctx: Context) -> str:
    note("begin", ctx)
    assert ctx.schedule is not None
    assert ctx.schedule.slot_at is not None
    return ctx.schedule.slot_at.isoformat()
