"""Draws the worked timeline of a pace from a real run: `python -m bench.timeline FILE.svg`. A minute takes four seconds.

A worker runs the jobs of one queue that lets three go in two minutes, half a minute apart, and had its last cycle at 0:00.
Six delayed jobs are due at 0:15; a real-time job comes every 12 seconds.
"""

import asyncio
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from demora import Context, Demora
from demora.core.pace import Pace

MINUTE = 4.0  # seconds
LAST = 5.6  # minutes
BEGUN = Pace(gap=timedelta(seconds=2 * MINUTE), burst=1, stagger=timedelta(seconds=MINUTE / 2), rapid=None)
PACE = Pace(gap=BEGUN.gap, burst=3, stagger=BEGUN.stagger, rapid=None)
LEFT, TOP, WIDE, ROW = 90, 34, 130, 22  # pixels: of the margins, a minute, and a line


class Seen(NamedTuple):
    """A job, in minutes of the timeline: when it could have started, and when it did."""

    delayed: bool
    due: float
    started: float


async def run() -> list[Seen]:
    """Live through it, on an SQLite file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        app = Demora(f"sqlite:///{folder}/jobs.db")
        starts: dict[str, float] = {}

        @app.job("work")
        async def work(ctx: Context) -> None:
            starts[ctx.id] = time.time()

        async with app, app.worker():
            client = await app.open()
            await client.set_pace("default", BEGUN)
            begun = await app.enqueue("work", delay="200ms")
            await app.wait(begun.id)
            zero = (await app.get(begun.id)).due_at
            await client.set_pace("default", PACE)
            due = zero + timedelta(seconds=MINUTE / 4)
            delayed = await app.enqueue_many([("work", {}, {"at": due})] * 6)
            real = await _real_time(app, zero)
            await asyncio.gather(*(app.wait(job.id) for job in delayed))

        def minutes(at: float) -> float:
            return (at - zero.timestamp()) / MINUTE

        held = [Seen(True, minutes(due.timestamp()), minutes(starts[job.id])) for job in delayed]
        return [*held, *(Seen(False, minutes(at), minutes(starts[id])) for id, at in real)]


async def _real_time(app: Demora, zero: datetime) -> list[tuple[str, float]]:
    """A job every twelve seconds of the timeline, and when each was asked for."""
    asked = []
    while (datetime.now(UTC) - zero).total_seconds() < (LAST - 0.3) * MINUTE:
        asked.append(((await app.enqueue("work")).id, time.time()))
        await asyncio.sleep(MINUTE / 5)
    return asked


def drawn(seen: list[Seen]) -> str:
    """The timeline as SVG: a bar for how long each delayed job was held, a dot for each start."""
    held = sorted((job for job in seen if job.delayed), key=lambda job: job.started)
    height = TOP + ROW * (len(held) + 2) + 24
    parts = [_axis(height - 24)]
    y = TOP + ROW // 2
    parts.append(_label("real-time", y))
    parts += [_dot(job.started, y, "#2a7a4b") for job in seen if not job.delayed]
    for n, job in enumerate(held):
        y = TOP + ROW * (n + 1) + ROW // 2 + 8
        parts.append(_label(f"delayed {n + 1}", y))
        parts.append(
            f'<rect x="{_x(job.due)}" y="{y - 4}" width="{_x(job.started) - _x(job.due):.1f}" height="8" fill="#d9d2e9"/>'
        )
        parts.append(_dot(job.started, y, "#674ea7"))
        parts.append(f'<text x="{_x(job.started) + 9}" y="{y + 4}">{_clock(job.started)}</text>')
    size = f'width="{_x(LAST):.0f}" height="{height}"'
    style = 'font-family="sans-serif" font-size="12" fill="#333"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def _axis(bottom: int) -> str:
    lines = [
        f'<line x1="{_x(minute)}" y1="{TOP - 12}" x2="{_x(minute)}" y2="{bottom}" stroke="#ddd"/>'
        f'<text x="{_x(minute)}" y="{TOP - 18}" text-anchor="middle">{minute}:00</text>'
        for minute in range(int(LAST) + 1)
    ]
    return "\n".join(lines)


def _label(text: str, y: int) -> str:
    return f'<text x="6" y="{y + 4}">{text}</text>'


def _dot(minute: float, y: int, colour: str) -> str:
    return f'<circle cx="{_x(minute)}" cy="{y}" r="4" fill="{colour}"/>'


def _x(minute: float) -> float:
    return round(LEFT + minute * WIDE, 1)


def _clock(minute: float) -> str:
    seconds = round(minute * 60)
    return f"{seconds // 60}:{seconds % 60:02}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(asyncio.run(run())))
