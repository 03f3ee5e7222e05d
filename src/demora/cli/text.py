"""Text for people: what others set is escaped, spans are rounded, times are told from now."""

from datetime import datetime, timedelta

from ..core.job import Job
from ..core.spans import ZERO, say

_GRAINS = (
    (timedelta(days=2), timedelta(hours=1)),
    (timedelta(hours=2), timedelta(minutes=1)),
    (timedelta(seconds=1), timedelta(seconds=1)),
    (ZERO, timedelta(milliseconds=1)),
)


def plain(text: str) -> str:
    """The text with all that does not print escaped, so that nobody's text can move the cursor or forge a line."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def rough(span: timedelta) -> str:
    """The span as exactly as people care for: `3d4h`, `2h15m`, `42s`, `120ms`."""
    grain = next(grain for least, grain in _GRAINS if span >= least)
    return say((span + grain / 2) // grain * grain)


def from_now(at: datetime, now: datetime) -> str:
    """`in 5m`, `now`, `5m ago`."""
    if at > now:
        return f"in {rough(at - now)}"
    return "now" if now - at < timedelta(seconds=1) else f"{rough(now - at)} ago"


def due(job: Job, now: datetime) -> str:
    """When a waiting job becomes ready: `in 5m`, or `now`."""
    return from_now(max(job.due_at, now), now)


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
