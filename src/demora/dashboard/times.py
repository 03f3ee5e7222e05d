"""The times in what pages say. A page shows every time in the zone of the browser, and in UTC where no script runs.

So a sentence with times in it is a row of pieces, texts and times, which a template writes as text and `<time>` elements.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from ..core.spans import moment
from ..errors import Invalid

Pieces = tuple[str | datetime, ...]


def told(sentence: str, data: Any) -> Pieces:
    """Split a sentence at its times: those which its data has, written in UTC with or without their date."""
    written = dict(_written(_times(data)))
    if not written:
        return (sentence,)
    parts = re.split("(" + "|".join(sorted(map(re.escape, written), key=len, reverse=True)) + ")", sentence)
    return tuple(written.get(part, part) for part in parts if part)


def _written(times: Iterable[datetime]) -> Iterator[tuple[str, datetime]]:
    for at in times:
        yield f"{at:%Y-%m-%d %H:%M:%S} UTC", at
        yield f"{at:%H:%M:%S} UTC", at


def _times(data: Any) -> Iterator[datetime]:
    if isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            yield from _times(one)
    elif isinstance(data, str) and len(data) == len("2026-11-17T09:00:00.000Z") and data.endswith("Z"):
        try:
            yield datetime.fromisoformat(data).astimezone(UTC)
        except ValueError:
            return


def when(at: datetime, now: datetime) -> str:
    """Write a time in UTC, with its date unless that is today."""
    at = at.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == now.astimezone(UTC).date() else f"{on_day(at)} UTC"


def on_day(at: datetime) -> str:
    """Write a time in UTC with its day, as the script writes it: `17 Nov 2026, 09:12:01`."""
    at = at.astimezone(UTC)
    return f"{at.day} {at:%b %Y, %H:%M:%S}"


def near(at: datetime, now: datetime) -> str:
    """Write a time in UTC for a picture that says so: the clock today, else the day and the minute."""
    at = at.astimezone(UTC)
    return f"{at:%H:%M:%S}" if at.date() == now.astimezone(UTC).date() else f"{at:%d %b %H:%M}"


def read_time(text: str, field: str) -> datetime:
    """Return the time that a field of a form has: an ISO 8601 time with its zone."""
    try:
        return moment(datetime.fromisoformat(text.strip()), field)
    except ValueError:
        raise Invalid(field, "is not a time, for instance 2026-11-17T09:00Z") from None
