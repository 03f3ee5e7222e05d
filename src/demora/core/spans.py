"""Times, spans and sizes as callers write them, as stores keep them, and, like counts, as people read them.

Callers write `1h30m`, `512MB`, a `timedelta` or a `datetime` with a zone. Stores keep whole milliseconds and bytes.
"""

import re
from datetime import UTC, datetime, timedelta

import msgspec

from ..errors import Invalid

MILLISECOND = timedelta(milliseconds=1)
MICROSECOND = timedelta(microseconds=1)
ZERO = timedelta(0)
CENTURY = timedelta(days=36525)

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE_UNITS = {"KB": 1024, "MB": 1024**2, "GB": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(KB|MB|GB)")


def span(value: timedelta | str, field: str, *, most: timedelta = CENTURY) -> timedelta:
    """Return the span that `value` means. Refuses negative spans, spans longer than `most`, and bare numbers."""
    if isinstance(value, str):
        value = _parse(value, field)
    if not isinstance(value, timedelta):
        raise Invalid(field, f"a span is a timedelta or text like '90s' or '1h30m', not {type(value).__name__}")
    if value < ZERO:
        raise Invalid(field, "a span cannot be negative")
    if value > most:
        raise Invalid(field, f"a span of at most {say(most)} is allowed")
    return value


def moment(value: datetime, field: str) -> datetime:
    """Return `value` if it has a zone; refuse it otherwise."""
    if not isinstance(value, datetime):
        raise Invalid(field, f"a time is a datetime with a zone, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise Invalid(field, "the time has no zone; add one, for instance 'Z' or '+02:00'")
    return value


def to_ms(value: datetime) -> int:
    """Return milliseconds since 1970, rounded up, so that a job is never due before the time that the caller asked for."""
    return -((_EPOCH - value) // MILLISECOND)


def from_ms(value: int) -> datetime:
    return _EPOCH + value * MILLISECOND


def timestamp(at: datetime) -> str:
    """Format a time as RFC 3339 in UTC, always with milliseconds."""
    text: str = msgspec.to_builtins(at.astimezone(UTC))  # ten times as fast as `isoformat`; without a fraction if it is zero
    return f"{text[:23]}Z" if at.microsecond else f"{text[:19]}.000Z"


def span_ms(value: timedelta) -> int:
    """Return whole milliseconds, rounded up, so that a wait is never cut short."""
    return -(-value // MILLISECOND)


def say(value: timedelta) -> str:
    """Format a span for people: `1h30m`, `250ms`."""
    rest, words = span_ms(value), []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0s"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its word for people: `1 job`, `2,000 jobs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(value: str, field: str) -> int:
    """Return the bytes that `value` means. A kilobyte has 1024 bytes. Refuses bare numbers and zero."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (meant := int(float(found[1]) * _SIZE_UNITS[found[2]])):
        raise Invalid(field, "a size is text like '512MB' or '2GB'")
    return meant


def spread(count: int, over: timedelta | str) -> list[timedelta]:
    """Return the delays of `count` jobs that are spread over a span: the first is due at once, the others follow evenly."""
    whole = span(over, "spread")
    if whole == ZERO:
        raise Invalid("spread", "must be greater than zero")
    milliseconds = whole // MILLISECOND
    return [timedelta(milliseconds=milliseconds * n // count) for n in range(count)]


def _parse(text: str, field: str) -> timedelta:
    if not _SPAN.fullmatch(text) or len(text) > 64:
        raise Invalid(field, f"{text[:64]!r} is not a span; write for instance '250ms', '30s', '5m', '1h30m' or '7d'")
    try:
        return timedelta(milliseconds=sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    except OverflowError:
        raise Invalid(field, "the span is too long") from None
