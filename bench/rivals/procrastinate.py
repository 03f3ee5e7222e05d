"""Procrastinate on PostgreSQL."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from procrastinate import App, PsycopgConnector

from bench.rivals import notes, sending

app = App(connector=PsycopgConnector(conninfo=os.environ["DEMORA_BENCH_PLACE"]), import_paths=["bench.rivals.procrastinate"])


@app.task(name="noop")
async def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    notes.ran()
    return {"ok": True}


@app.task(name="stamp")
async def stamp(due: float) -> None:
    notes.ran_late(due)


async def now(jobs: int) -> None:
    async with app.open_async():
        await noop.batch_defer_async(*[sending.PAYLOAD] * jobs)


async def later(dues: Sequence[float]) -> None:
    async with app.open_async():
        for due in dues:
            await stamp.configure(schedule_at=datetime.fromtimestamp(due, UTC)).defer_async(due=due)
