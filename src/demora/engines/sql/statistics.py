"""Statistics as both engines store them: merged windows as JSON, and the bounds of the times that a merge reads."""

import msgspec

from ...core.spans import span_ms
from ...core.statistics import CLOSED_AFTER, KEPT, MINUTE, THINNED, WINDOW_MS, Key, Stretch, Tally, begin_of

RELEASES = "pace"  # the writer of releases: a pace is locked while it releases, so no two processes write its row at once
WIDTHS = [span_ms(width) for width, _, _ in THINNED] + [span_ms(THINNED[-1][2])]

decode = msgspec.json.Decoder(Tally).decode
_encode = msgspec.json.Encoder().encode


def text(tally: Tally) -> str:
    """Return a tally as it is stored."""
    return _encode(tally).decode()


def closed_before(now: int) -> int:
    """The beginning of the first window to which processes may still add."""
    return begin_of(now - span_ms(CLOSED_AFTER), WINDOW_MS)


def kept_since(now: int) -> int:
    return now - span_ms(KEPT)


def first_of(stretch: Stretch, now: int) -> int:
    """The beginning of the first window of a stretch."""
    step = span_ms(stretch.step)
    return begin_of(now, step) - span_ms(stretch.length) + step


def sample_key(queue: str, now: int) -> Key:
    """The window of a queue that holds how many of its jobs wait. That of no queue says that the minute has been sampled."""
    width = span_ms(MINUTE)
    return Key(queue, "", begin_of(now, width), width)


def first_id(ms: int) -> bytes:
    """The least id of a job that was added at this time: ids begin with the time in milliseconds."""
    return max(ms, 0).to_bytes(6) + bytes(10)
