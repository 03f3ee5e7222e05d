"""The handlers that the benchmarks run."""

import time

from demora import Context, Demora

app = Demora()


@app.job("bench.noop")
async def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    return {"ok": True}


@app.job("bench.stamp")
async def stamp(ctx: Context) -> dict[str, float]:
    """When the handler's first line ran, and when the job was due."""
    now = time.time()
    return {"now": now, "due": ctx.job.scheduled_at.timestamp()}


@app.job("bench.bytes")
async def bytes_(body: str) -> None:
    pass
