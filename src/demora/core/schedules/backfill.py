"""Backfills: for which past fire times of a schedule a caller may still have jobs."""

from datetime import datetime
from itertools import islice

from ...errors import Invalid
from ..spans import MILLISECOND, from_ms, moment, timestamp, to_ms
from .schedule import Schedule, fire_times_between

MOST_FIRE_TIMES = 10_000


def backfill_times(
    schedule: Schedule, first: datetime, last: datetime, *, decided_to: datetime, forgotten_to: datetime | None
) -> list[datetime]:
    """Return the fire times from `first` to `last` that were decided on, oldest first, whether or not they have a job.

    Fire times after `decided_to` are left out, because they fire by themselves. `Invalid` refuses a range that begins where
    the records of fire times are no longer kept (up to `forgotten_to`), since a fire time there may have had its job, and a
    range of more than `MOST_FIRE_TIMES` fire times.
    """
    first, last = from_ms(to_ms(moment(first, "from"))), from_ms(to_ms(moment(last, "to")))
    if last < first:
        raise Invalid("to", f"must not be before from, {timestamp(first)}")
    if forgotten_to is not None and first <= forgotten_to:
        raise Invalid(
            "from", f"which fire times had a job is known only after {timestamp(forgotten_to)}; give a time after that one"
        )
    found = list(islice(fire_times_between(schedule, first - MILLISECOND, min(last, decided_to)), MOST_FIRE_TIMES + 1))
    if len(found) > MOST_FIRE_TIMES:
        raise Invalid(
            "to", f"the range has more than {MOST_FIRE_TIMES:,} fire times; give one that ends before {timestamp(found[-1])}"
        )
    return found
