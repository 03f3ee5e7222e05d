"""What the answer of another server means for whoever called it."""

from collections.abc import Collection
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum

from .backoff import backoff
from .spans import ZERO

LONGEST_RETRY_AFTER = timedelta(hours=12)
JITTER = 0.2  # of a wait, so that those who failed together do not come again together
_PASSING = frozenset({408, 425, 429})
GONE = 410


class Meaning(Enum):
    """What to do after an answer."""

    DONE = "done"
    AGAIN = "again"  # later it may be another one
    USELESS = "useless"  # it will be the same for ever
    GONE = "gone"  # and nobody there wants to hear of us again


def meaning_of_call(status: int, expected: Collection[int] = ()) -> Meaning:
    """For `http.request`: what was expected is a success, what may pass is tried again, everything else never will."""
    if status in expected or (not expected and 200 <= status < 300):
        return Meaning.DONE
    return Meaning.AGAIN if status in _PASSING or status >= 500 else Meaning.USELESS


def meaning_of_delivery(status: int) -> Meaning:
    """For a webhook: whatever is no success is tried again, since the event stays true, unless the receiver is gone."""
    if 200 <= status < 300:
        return Meaning.DONE
    return Meaning.GONE if status == GONE else Meaning.AGAIN


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """The wait that a Retry-After header asks for, capped; None if there is none, or none that can be read."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return LONGEST_RETRY_AFTER if len(text) > 6 else min(timedelta(seconds=int(text)), LONGEST_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(text)
        wait = at - now
    except (TypeError, ValueError, OverflowError):  # a time without a zone is none either
        return None
    return min(max(wait, ZERO), LONGEST_RETRY_AFTER)


def wait_before(asked: timedelta | None, *, base: timedelta, failures: int, cap: timedelta) -> timedelta | None:
    """The wait after the `failures`-th failure that the server asked for, but no less than the usual backoff; None leaves it
    to that."""
    return None if asked is None else max(asked, backoff(base, failures, cap=cap))
