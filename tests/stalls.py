"""When the machine itself stood still, so that a bound in milliseconds judges demora and not the host that it runs on.

A process on each core sleeps for two milliseconds again and again and writes down each time that it wakes. Where one slept
much longer nobody on that core ran, whatever they did: the host had taken the core away. One of them can also have its notes
made durable now and then: where that takes as long, the disk stood still.
"""

import asyncio
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count, pairwise
from pathlib import Path

from tests.facts import eventually

TICK = 0.002
STALL = 0.008  # seconds between two ticks that no busy neighbour explains: four of them on two cores seldom make it so long
DURABLE = 10  # ticks from one that is made durable to the next
PINNED = hasattr(os, "sched_setaffinity")  # elsewhere there are as many watches as cores, and most cores have one


class Stalls:
    """What the watches on all cores saw."""

    def __init__(self, ticks: list[Path]) -> None:
        self._ticks = ticks

    async def between(self, since: datetime, until: datetime) -> timedelta:
        """For how long one core at least stood still in this time."""
        return timedelta(seconds=covered(await self.until(until.timestamp()), since.timestamp(), until.timestamp()))

    async def until(self, end: float) -> list[tuple[float, float]]:
        """Every stall of a core up to a time."""
        return [stall for file in self._ticks for stall in stalls(await _seen(file, end))]


def stalls(ticks: "array[float]") -> Iterator[tuple[float, float]]:
    """The times between two ticks that are too far apart."""
    return ((before, after) for before, after in pairwise(ticks) if after - before > STALL)


def covered(spans: Iterable[tuple[float, float]], since: float, until: float) -> float:
    """How much of this time lies within one of the spans at least."""
    total = 0.0
    for begin, end in sorted(spans):
        begin, end = max(begin, since), min(end, until)
        total += max(end - begin, 0.0)
        since = max(since, end)
    return total


@contextmanager
def watching(folder: Path, *, disk: bool = False) -> Iterator[Stalls]:
    """Watch all cores that this process may use, and the disk that the folder is on."""
    cores = os.sched_getaffinity(0) if PINNED else range(os.cpu_count() or 1)
    files = {core: folder / f"ticks.{core}" for core in cores}
    durable = min(files) if disk else None
    watches = [_start(core, file, disk=core == durable) for core, file in files.items()]
    try:
        yield Stalls(list(files.values()))
    finally:
        for watch in watches:
            watch.kill()
            watch.wait()


def _start(core: int, file: Path, *, disk: bool) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.stalls", str(core), str(file), *(["disk"] if disk else [])]
    return subprocess.Popen(command)


async def _seen(file: Path, end: float) -> "array[float]":
    """The ticks of a watch, once it has come so far: what it has not told yet may be a stall."""
    return await eventually(lambda: asyncio.to_thread(_read, file), lambda ticks: ticks and ticks[-1] >= end)


def _read(file: Path) -> "array[float]":
    ticks = array("d")
    if file.exists():
        written = file.read_bytes()
        ticks.frombytes(written[: len(written) // ticks.itemsize * ticks.itemsize])
    return ticks


def _watch(core: int, file: str, *, disk: bool) -> None:
    if PINNED:
        os.sched_setaffinity(0, {core})
    with open(file, "wb", buffering=0) as ticks:
        for n in count():
            ticks.write(array("d", [time.time()]))
            if os.getppid() == 1:
                return
            if disk and n % DURABLE == 0:
                os.fsync(ticks.fileno())
            else:
                time.sleep(TICK)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2], disk=sys.argv[3:] == ["disk"])
