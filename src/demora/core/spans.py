"""Times and spans at the border: `1h30m`, `timedelta`, aware datetimes, and whole milliseconds inside the stores."""

import re
from datetime import UTC, datetime, timedelta

from ..errors import Invalid

MILLISECOND = timedelta(milliseconds=1)
ZERO = timedelta(0)
CENTURY = timedelta(days=36525)

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def span(value: timedelta | str, field: str, *, most: timedelta = CENTURY) -> timedelta:
    """The span that `value` means; refuses negative ones, those over `most`, and bare numbers."""
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
    """`value` itself, if it has a zone."""
    if not isinstance(value, datetime):
        raise Invalid(field, f"a time is a datetime with a zone, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise Invalid(field, "the time has no zone; say which, for instance with 'Z' or '+02:00'")
    return value


def to_ms(value: datetime) -> int:
    """Milliseconds since 1970, rounded up, so that a due time is never moved to before what was asked."""
    return -((_EPOCH - value) // MILLISECOND)


def from_ms(value: int) -> datetime:
    return _EPOCH + value * MILLISECOND


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC, always with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span_ms(value: timedelta) -> int:
    """Whole milliseconds, rounded up: a wait is never cut short."""
    return -(-value // MILLISECOND)


def say(value: timedelta) -> str:
    """The span for people: `1h30m`, `250ms`."""
    rest, words = span_ms(value), []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0s"


def _parse(text: str, field: str) -> timedelta:
    if not _SPAN.fullmatch(text) or len(text) > 64:
        raise Invalid(field, f"{text[:64]!r} is not a span; write for instance '250ms', '30s', '5m', '1h30m' or '7d'")
    try:
        return timedelta(milliseconds=sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    except OverflowError:
        raise Invalid(field, "the span is too long") from None


# Sizes at the border: `512MB`, `2GB`.


_SIZE_UNITS = {"KB": 1024, "MB": 1024**2, "GB": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(KB|MB|GB)")


def size(value: str, field: str) -> int:
    """The bytes that `value` means; a kilobyte has 1024. Refuses bare numbers and nothing at all."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (meant := int(float(found[1]) * _SIZE_UNITS[found[2]])):
        raise Invalid(field, "a size is text like '512MB' or '2GB'")
    return meant


# Spreading jobs evenly over a span, so that a batch does not come due all at once.


def spread(count: int, over: timedelta | str) -> list[timedelta]:
    """How long after now each of so many jobs is due: the first at once, the others evenly within the span."""
    whole = span(over, "spread")
    if whole == ZERO:
        raise Invalid("spread", "must be longer than nothing")
    milliseconds = whole // MILLISECOND
    return [timedelta(milliseconds=milliseconds * n // count) for n in range(count)]
