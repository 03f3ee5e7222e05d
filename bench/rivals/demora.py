"""demora, measured as its rivals are."""

from collections.abc import Sequence
from datetime import UTC, datetime

from bench.rivals import notes, sending
from demora import Demora

BATCH = 500
app = Demora()


@app.job("noop")
async def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    notes.ran()
    return {"ok": True}


@app.job("stamp")
async def stamp(due: float) -> None:
    notes.ran_late(due)


async def now(jobs: int) -> None:
    async with app:
        for begin in range(0, jobs, BATCH):
            await app.enqueue_many([("noop", sending.PAYLOAD)] * min(BATCH, jobs - begin))


async def later(dues: Sequence[float]) -> None:
    async with app:
        await app.enqueue_many([("stamp", {"due": due}, {"at": datetime.fromtimestamp(due, UTC)}) for due in dues])
