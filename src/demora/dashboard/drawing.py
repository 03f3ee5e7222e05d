"""Draws templates. Nothing that a caller can set becomes markup: it is escaped, and invisible characters are shown."""

import functools
import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .. import __version__
from ..core.spans import plural, say, timestamp
from .static_files import version
from .times import near, on_day, when

_KEPT = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_GRAINS = (
    (timedelta(days=2), timedelta(hours=1)),
    (timedelta(hours=2), timedelta(minutes=1)),
    (timedelta(seconds=10), timedelta(seconds=1)),
    (timedelta(seconds=1), timedelta(milliseconds=100)),
    (timedelta(0), timedelta(milliseconds=1)),
)


def draw(template: str, values: Mapping[str, Any], block: str | None = None) -> str:
    """Return the text of a template, or of one block of it."""
    found = _environment().get_template(template)
    if block is None:
        return found.render(values)
    context = found.new_context(dict(values))
    return "".join(found.blocks[block](context))


def draw_part(name: str, *values: Any) -> Markup:
    """Return the text of one of the small parts that pages share."""
    part: Markup = getattr(_environment().globals["m"], name)(*values)
    return part


def tell_times(parts: Iterable[Markup], now: datetime) -> Markup:
    """Join parts that were drawn without a `now`, and write how long ago their times are. So parts that have not changed
    can be kept as they are, which costs much less than drawing them anew."""
    return Markup(_UNTOLD.sub(lambda time: f"{time[1]}{ago(datetime.fromisoformat(time[2]), now)}</time>", "".join(parts)))


# What the macro `moment` draws without a `now`. No text of a caller looks like it, since it would be escaped.
_UNTOLD = re.compile(r'(<time datetime="([^"]+)" data-style="(?:ago|countdown)"[^>]*>)</time>')


def has_block(template: str, block: str) -> bool:
    """Return whether a template has a block of this name."""
    return block in _environment().get_template(template).blocks


def visible(value: Any) -> Any:
    """Return a text with every character that does not print as an escape, so that it cannot reorder or hide others."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(map(_shown, value))


def _shown(character: str) -> str:
    if character.isprintable() or character in _KEPT or unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()


def rough(span: timedelta) -> str:
    """Round a span for people: `3d 4h`, `2h 15m`, `42s`, `1.5s`, `120ms`."""
    if span < timedelta(milliseconds=1):
        return "under 1ms" if span > timedelta(0) else "0s"
    grain = next(grain for least, grain in _GRAINS if span >= least)
    rounded = (span + grain / 2) // grain * grain
    if timedelta(seconds=1) <= rounded < timedelta(seconds=10) and rounded % timedelta(seconds=1):
        return f"{rounded.total_seconds():.1f}s"
    return re.sub(r"(?<=[a-z])(?=\d)", " ", say(rounded))


def measured(span: timedelta) -> str:
    """Round a span that was measured. Clocks have a grain of 1 ms, so nothing took 0 s: it took less than 1 ms."""
    return rough(span) if span >= timedelta(milliseconds=1) else "under 1ms"


def measured_ms(milliseconds: float | None) -> str:
    """Round a measured number of milliseconds; a dash if there is none."""
    return "–" if milliseconds is None else measured(timedelta(milliseconds=milliseconds))


_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def ago(at: datetime, now: datetime) -> str:
    """Write a time relative to now: `in 5m 3s`, `now`, `2d 4h ago`. The script writes it in the same words, so nothing moves
    when it begins."""
    away = abs(at - now).total_seconds()
    if away < 1:
        return "now"
    whole = math.floor(away + 0.5)
    first, (unit, size) = next((n, one) for n, one in enumerate(_UNITS) if whole >= one[1])
    words = f"{whole // size}{unit}"
    if first + 1 < len(_UNITS) and (rest := whole % size // _UNITS[first + 1][1]):
        words += f" {rest}{_UNITS[first + 1][0]}"
    return f"in {words}" if at > now else f"{words} ago"


def seconds(value: float) -> str:
    return rough(timedelta(seconds=value))


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def size(bytes: int) -> str:
    """Write a number of bytes: `812 bytes`, `4.2 MB`."""
    for unit, many in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if bytes >= many:
            return f"{bytes / many:.1f} {unit}"
    return plural(bytes, "byte")


def clip(value: str, most: int = 120) -> str:
    return value if len(value) <= most else value[: most - 1] + "…"


def sentence(value: str) -> str:
    """Begin a text with a capital letter."""
    return f"{value[:1].upper()}{value[1:]}"


def digest(value: str) -> str:
    """Return a short name for a text that may hold any character, for the id of an element."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S}"


def day_and_clock(at: datetime) -> str:
    return f"{on_day(at)} UTC"


def state_of(status: str, reason: str = "") -> str:
    """Return the state that a page shows for a job: one of the words that have a colour."""
    if reason == "held_by_pace":
        return "held"
    if reason in ("not_due", "retry_due", "handed_back"):
        return "scheduled"
    waiting = {"PENDING": "scheduled", "QUEUED": "ready", "RETRYING": "scheduled", "PROCESSING": "running"}
    return waiting.get(status, status.lower())


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("demora.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        rough,
        measured,
        seconds,
        size,
        number,
        plural,
        clip,
        sentence,
        digest,
        clock,
        day_and_clock,
        timestamp,
        ago,
        when,
        near,
    )
    environment.filters.update({one.__name__: one for one in filters})
    environment.filters["say"] = say
    environment.globals.update(version=__version__, build=version(), state_of=state_of)
    environment.globals["m"] = environment.get_template("macros.html").module
    return environment
