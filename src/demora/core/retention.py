"""How long ended jobs are kept: by age, by number, or for ever; for all queues, or for one in its own way."""

import re
from datetime import timedelta

import msgspec

from ..errors import Invalid
from .spans import say, span
from .states import ENDED, Status

FOREVER = "forever"
GENERAL = "general"  # of a queue: as all queues keep
MOST_KEPT = 100_000
Text = str | msgspec.UnsetType | None  # what to keep, as it is written
_COUNT = re.compile(r"\d{1,10}")


class Keep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of jobs that ended in one way: those younger than `age`, and of these the newest `count`.

    None does not limit. With neither all are kept.
    """

    age: timedelta | None = None
    count: int | None = None

    def __str__(self) -> str:
        parts = [say(self.age)] if self.age is not None else []
        parts += [str(self.count)] if self.count is not None else []
        return ",".join(parts) or FOREVER


class Retention(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of each kind of ended job; None leaves it to the retention of all queues."""

    completed: Keep | None = None
    cancelled: Keep | None = None
    failed: Keep | None = None

    def of(self, status: Status) -> Keep | None:
        keep: Keep | None = getattr(self, status.name.lower())
        return keep

    def over(self, general: "Retention") -> "Retention":
        """These requests, and the general ones where there is none."""
        return Retention(**{status.name.lower(): self.of(status) or general.of(status) for status in ENDED})


class RetentionRequest(msgspec.Struct, frozen=True):
    """What to change of a queue's retention: what is unset stays, None leaves it to the retention of all queues again."""

    completed: Keep | msgspec.UnsetType | None = msgspec.UNSET
    cancelled: Keep | msgspec.UnsetType | None = msgspec.UNSET
    failed: Keep | msgspec.UnsetType | None = msgspec.UNSET

    def over(self, own: Retention) -> Retention:
        """The retention that is wished for, where there was this one."""
        requests = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(
            own, **{name: request for name, request in requests.items() if request is not msgspec.UNSET}
        )


def keep(text: str, field: str) -> Keep:
    """What `7d`, `1000` (jobs), `7d,1000` or `forever` means."""
    if not isinstance(text, str):
        raise Invalid(field, f"must be text like '7d', '1000', '7d,1000' or '{FOREVER}'")
    if text == FOREVER:
        return Keep()
    counts = [part for part in text.split(",") if _COUNT.fullmatch(part.strip())]
    ages = [part for part in text.split(",") if part not in counts]
    if len(counts) > 1 or len(ages) > 1:
        raise Invalid(field, f"give one age, one number of jobs, or both: '7d', '1000', '7d,1000' or '{FOREVER}'")
    count = int(counts[0]) if counts else None
    if count is not None and count > MOST_KEPT:
        raise Invalid(field, f"at most {MOST_KEPT:,} jobs can be counted; more are kept by age, or '{FOREVER}'")
    return Keep(_age(ages[0].strip(), field) if ages else None, count)


def _age(text: str, field: str) -> timedelta:
    try:
        return span(text, field)
    except Invalid:
        ways = f"'7d', '1000', '7d,1000' or '{FOREVER}'"
        raise Invalid(field, f"{text[:64]!r} is neither an age nor a number of jobs; write for instance {ways}") from None


def read_retention(
    completed: Text = msgspec.UNSET, cancelled: Text = msgspec.UNSET, failed: Text = msgspec.UNSET
) -> RetentionRequest | None:
    """What a caller wants to be kept of a queue; `general` or None is what is kept of all. None if nothing is said."""
    texts = {"completed": completed, "cancelled": cancelled, "failed": failed}
    said = {
        name: None if text in (None, GENERAL) else keep(text, f"keep_{name}")
        for name, text in texts.items()
        if text is not msgspec.UNSET
    }
    return RetentionRequest(**said) if said else None
