"""Retention: how long ended jobs are kept, by age, by number, or for ever; for all queues, or for a single one."""

import re
from datetime import timedelta

import msgspec

from ..errors import Invalid
from .spans import say, span
from .states import ENDED, Status

FOREVER = "forever"
GENERAL = "general"  # of a queue: the retention of the settings
MOST_KEPT = 100_000
Text = str | msgspec.UnsetType | None  # as callers write it
_COUNT = re.compile(r"\d{1,10}")


class Keep(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits for ended jobs of one status: those younger than `age` are kept, and of these the newest `count`.

    None is no limit. Without any limit all jobs are kept.
    """

    age: timedelta | None = None
    count: int | None = None

    def __str__(self) -> str:
        parts = [say(self.age)] if self.age is not None else []
        parts += [str(self.count)] if self.count is not None else []
        return ",".join(parts) or FOREVER


class Retention(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits for each status of ended jobs. None means the retention of all queues."""

    completed: Keep | None = None
    cancelled: Keep | None = None
    failed: Keep | None = None

    def of(self, status: Status) -> Keep | None:
        keep: Keep | None = getattr(self, status.name.lower())
        return keep

    def over(self, general: "Retention") -> "Retention":
        """Return this retention, with the general one where it has none."""
        return Retention(**{status.name.lower(): self.of(status) or general.of(status) for status in ENDED})


class RetentionRequest(msgspec.Struct, frozen=True):
    """A change of a queue's retention. A field that is unset stays as it is; None returns to the retention of all queues."""

    completed: Keep | msgspec.UnsetType | None = msgspec.UNSET
    cancelled: Keep | msgspec.UnsetType | None = msgspec.UNSET
    failed: Keep | msgspec.UnsetType | None = msgspec.UNSET

    def over(self, own: Retention) -> Retention:
        """Return the retention after the change, for a queue that had this one."""
        requests = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(
            own, **{name: request for name, request in requests.items() if request is not msgspec.UNSET}
        )


def keep(text: str, field: str) -> Keep:
    """Read `7d`, `1000` (jobs), `7d,1000` or `forever`."""
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


def read_retention(
    completed: Text = msgspec.UNSET, cancelled: Text = msgspec.UNSET, failed: Text = msgspec.UNSET
) -> RetentionRequest | None:
    """Return a caller's change of a queue's retention, None if there is none. `general` or None in a field returns to the
    retention of all queues."""
    texts = {"completed": completed, "cancelled": cancelled, "failed": failed}
    said = {
        name: None if text in (None, GENERAL) else keep(text, f"keep_{name}")
        for name, text in texts.items()
        if text is not msgspec.UNSET
    }
    return RetentionRequest(**said) if said else None


def _age(text: str, field: str) -> timedelta:
    try:
        return span(text, field)
    except Invalid:
        ways = f"'7d', '1000', '7d,1000' or '{FOREVER}'"
        raise Invalid(field, f"{text[:64]!r} is neither an age nor a number of jobs; write for instance {ways}") from None
