"""What an API key may submit: which queues and types, how many names of each, how many waiting jobs, how many requests."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from ..errors import Invalid, LimitReached, NotAllowedForKey
from .job import NewJob

MOST_PATTERNS = 100  # of queues, and of types
MOST_LIMIT = 1_000_000_000

_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_TYPE_CHARACTERS = _NAME_CHARACTERS | frozenset(":/")


class NameKind(StrEnum):
    """What a name that counts against a limit is a name of."""

    QUEUE = "queue"
    TYPE = "type"


class KeyLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of one key. A number that is None is that of the settings, 0 is no limit. No pattern allows every name."""

    max_queues: int | None = None
    max_types: int | None = None
    max_waiting: int | None = None
    rate: int | None = None  # requests a second
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    def over(self, usual: "KeyLimits") -> "KeyLimits":
        """These limits, with those of the settings where this key has none of its own."""
        return KeyLimits(
            max_queues=usual.max_queues if self.max_queues is None else self.max_queues,
            max_types=usual.max_types if self.max_types is None else self.max_types,
            max_waiting=usual.max_waiting if self.max_waiting is None else self.max_waiting,
            rate=usual.rate if self.rate is None else self.rate,
            queues=self.queues,
            types=self.types,
        )


def check_limits(
    *,
    max_queues: int | None = None,
    max_types: int | None = None,
    max_waiting: int | None = None,
    rate: int | None = None,
    queues: Iterable[str] = (),
    types: Iterable[str] = (),
) -> KeyLimits:
    """The limits, or `Invalid` that names the field and says what would be right."""
    return KeyLimits(
        max_queues=_limit(max_queues, "max_queues"),
        max_types=_limit(max_types, "max_types"),
        max_waiting=_limit(max_waiting, "max_waiting"),
        rate=_limit(rate, "rate"),
        queues=_patterns(queues, "queues", _NAME_CHARACTERS, 64),
        types=_patterns(types, "types", _TYPE_CHARACTERS, 128),
    )


def matches(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern: a whole name, or one with a single `*` that stands for any characters, or none."""
    before, star, after = pattern.partition("*")
    if not star:
        return name == pattern
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after)


def check_allowed(limits: KeyLimits, jobs: Sequence[NewJob]) -> None:
    """Raise `NotAllowedForKey` for the first job with a queue or type that the key may not use."""
    for n, job in enumerate(jobs):
        place = f"jobs[{n}]." if len(jobs) > 1 else ""
        if not _fits_any(limits.queues, job.queue):
            raise NotAllowedForKey(f"{place}queue", job.queue, limits.queues)
        if not _fits_any(limits.types, job.type):
            raise NotAllowedForKey(f"{place}type", job.type, limits.types)


def too_many_names(kind: NameKind, limits: KeyLimits) -> LimitReached:
    most = (limits.max_queues if kind is NameKind.QUEUE else limits.max_types) or 0
    return LimitReached(kind.value, most)


def _fits_any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(matches(pattern, name) for pattern in patterns)


def _limit(value: int | None, field: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_LIMIT):
        raise Invalid(field, f"must be a whole number from 0, which means no limit, to {MOST_LIMIT}")
    return value


def _patterns(given: Iterable[str], field: str, characters: frozenset[str], longest: int) -> tuple[str, ...]:
    patterns = tuple(dict.fromkeys(given))
    if len(patterns) > MOST_PATTERNS:
        raise Invalid(field, f"at most {MOST_PATTERNS} patterns are allowed")
    for pattern in patterns:
        one_star = isinstance(pattern, str) and pattern.count("*") <= 1
        if not one_star or not 1 <= len(pattern) <= longest or not frozenset(pattern) <= characters | {"*"}:
            raise Invalid(field, "a pattern is a name, with one * at most for any characters: mail, mail.*, *.eu")
    return patterns
