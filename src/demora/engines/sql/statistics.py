"""Statistics as both engines store them: merged windows as JSON, and the bounds of the times that a merge reads."""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from ...core.spans import from_ms, span_ms
from ...core.statistics import CLOSED_AFTER, KEPT, MINUTE, THINNED, WINDOW_MS, Key, Stretch, Tally, Windows, begin_of
from ...store.statistics import Depth, Standing, Taking

RELEASES = "pace"  # the writer of releases: a pace is locked while it releases, so no two processes write its row at once
WIDTHS = [span_ms(width) for width, _, _ in THINNED] + [span_ms(THINNED[-1][2])]

TURN = 50  # windows that are added up before other threads get their turn

decode = msgspec.json.Decoder(Tally).decode
_encode = msgspec.json.Encoder().encode


def text(tally: Tally) -> str:
    """Return a tally as it is stored."""
    return _encode(tally).decode()


def merged_window(row: Iterable[Any]) -> tuple[Key, Tally]:
    """Return a window of all processes from its row."""
    width, at, queue, type, tally = row
    return Key(queue, type, at, width), decode(tally)


def hand_over(windows: Iterable[tuple[Key, Tally]], taking: Taking) -> bool:
    """Hand windows to `taking`, and return whether it needs more.

    A thread that computes lets other threads run only every 5 ms, and a request passes between threads many times. So this
    one yields to them about every half millisecond.
    """
    for number, (key, tally) in enumerate(windows):
        if number % TURN == 0:
            time.sleep(0)
        if not taking.take(key, tally):
            return False
    return True


def closed_before(now: int) -> int:
    """The beginning of the first window to which processes may still add."""
    return begin_of(now - span_ms(CLOSED_AFTER), WINDOW_MS)


def thinnings(now: int) -> Iterator[tuple[int, int, timedelta]]:
    """What a merge thins, in its order: the width of the windows, the time before which they begin, and their new width."""
    for width, kept_for, wider in THINNED:
        yield span_ms(width), begin_of(now - span_ms(kept_for), span_ms(wider)), wider


def kept_since(now: int) -> int:
    return now - span_ms(KEPT)


def first_of(stretch: Stretch, now: int) -> int:
    """The beginning of the first window of a stretch."""
    step = span_ms(stretch.step)
    return begin_of(now, step) - span_ms(stretch.length) + step


def sample_key(queue: str, now: int) -> Key:
    """The key of the window that holds how many jobs of a queue wait. An empty queue marks the minute as sampled."""
    width = span_ms(MINUTE)
    return Key(queue, "", begin_of(now, width), width)


def samples(depths: Mapping[str, Depth], now: int) -> Windows:
    """The windows that record how many jobs wait in each queue."""
    return {sample_key(queue, now): Tally(ready=d.ready, waiting=d.delayed) for queue, d in depths.items()}


def standing_of(now: int, running: Iterable[tuple[str, int]], due: Iterable[tuple[str, int]]) -> Standing:
    """What runs and waits, from rows of a queue and its running jobs, and of a queue and its first due time."""
    return Standing(
        now=from_ms(now),
        running=dict(running),
        due_since={queue: from_ms(due_at) for queue, due_at in due},
    )


def first_id(ms: int) -> bytes:
    """The least id of a job that was added at this time: ids begin with the time in milliseconds."""
    return max(ms, 0).to_bytes(6) + bytes(10)
