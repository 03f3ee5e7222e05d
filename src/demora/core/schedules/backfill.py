"""Backfills: for which past fire times of a schedule a caller may still have jobs."""

from datetime import datetime
from itertools import islice

from ...errors import Invalid
from ..spans import MILLISECOND, from_ms, moment, timestamp, to_ms
from .schedule import Schedule, slots_between

MOST_SLOTS = 10_000


def backfill_slots(
    schedule: Schedule, first: datetime, last: datetime, *, decided_to: datetime, forgotten_to: datetime | None
) -> list[datetime]:
    """Return the slots from `first` to `last` that were decided on, oldest first, whether or not they have a job.

    Slots after `decided_to` are left out, because they fire by themselves. `Invalid` refuses a range that begins where the
    records of slots are no longer kept (up to `forgotten_to`), since a slot there may have had its job, and a range of more
    than `MOST_SLOTS` slots.
    """
    first, last = from_ms(to_ms(moment(first, "from"))), from_ms(to_ms(moment(last, "to")))
    if last < first:
        raise Invalid("to", f"must not be before from, {timestamp(first)}")
    if forgotten_to is not None and first <= forgotten_to:
        raise Invalid(
            "from", f"which fire times had a job is known only after {timestamp(forgotten_to)}; give a time after that one"
        )
    found = list(islice(slots_between(schedule, first - MILLISECOND, min(last, decided_to)), MOST_SLOTS + 1))
    if len(found) > MOST_SLOTS:
        raise Invalid(
            "to", f"the range has more than {MOST_SLOTS:,} fire times; give one that ends before {timestamp(found[-1])}"
        )
    return found
