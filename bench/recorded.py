"""The handlers of the benchmarks in a worker that notes what holds it up: garbage collections, a busy event loop, and calls
of the database that take long."""

import asyncio
import gc
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.jobs import app
from demora import Context
from demora.engines.sqlite import SqliteStore
from demora.handlers.registry import Next

NOTES = "BENCH_NOTES"  # names the file
TICK = 0.002  # seconds that the event loop is asked to sleep
HELD_UP = 0.008  # seconds beyond it that are noted
COLLECTION, LOOP, CALLS = "a garbage collection", "the event loop", ("claim", "settle")
KINDS = (COLLECTION, LOOP, *CALLS)

Span = tuple[float, float]  # seconds since 1970

__all__ = ("app", "read_notes")

_kept: list[Any] = []  # the task that watches, and the start of a collection


def read_notes(file: Path) -> dict[str, list[Span]]:
    """Return the spans of each kind that a process has noted."""
    found = defaultdict[str, list[Span]](list)
    for line in file.read_text().splitlines() if file.exists() else ():
        name, begin, end = line.rsplit(" ", 2)
        found[name].append((float(begin), float(end)))
    return found


def _note(name: str, begin: float) -> None:
    with open(os.environ[NOTES], "a") as notes:
        notes.write(f"{name} {begin} {time.time()}\n")


def _collecting(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _kept[0] = time.time()
    elif time.time() - _kept[0] > HELD_UP:
        _note(COLLECTION, _kept[0])


async def _watch_loop() -> None:
    while True:
        began = time.time()
        await asyncio.sleep(TICK)
        if time.time() - began > TICK + HELD_UP:
            _note(LOOP, began)


def _timed(verb: str) -> None:
    """Note the calls of a verb that take long."""
    call = getattr(SqliteStore, verb)

    async def timed(*args: Any, **options: Any) -> Any:
        began = time.time()
        try:
            return await call(*args, **options)
        finally:
            if time.time() - began > HELD_UP:
                _note(verb, began)

    setattr(SqliteStore, verb, timed)


@app.middleware
async def _recorded(ctx: Context, call_next: Next) -> Any:
    """Begin to watch with the first run: before that the worker has no event loop."""
    if NOTES in os.environ and not _kept:
        _kept.append(0.0)
        gc.callbacks.append(_collecting)
        _kept.append(asyncio.ensure_future(_watch_loop()))
    return await call_next()


if NOTES in os.environ:
    for verb in CALLS:
        _timed(verb)
