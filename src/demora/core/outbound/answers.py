"""Answers to calls: what each means for the job that called, and how long the job waits before it tries again."""

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import Enum

from ..spans import ZERO
from ..verdict import backoff

LONGEST_RETRY_AFTER = timedelta(hours=12)
JITTER = 0.2  # the part of a wait that is random, so that calls that failed together are not repeated together
_TEMPORARY = frozenset({408, 425, 429})
GONE = 410


class Meaning(Enum):
    """What to do after an answer."""

    DONE = "done"
    AGAIN = "again"  # try again: the answer may change
    USELESS = "useless"  # do not try again: the answer will be the same
    GONE = "gone"  # do not try again, and send no other message there


def meaning_of_call(status: int, expected: Collection[int] = ()) -> Meaning:
    """Judge the answer to an `http.request`. An expected status is a success, a temporary failure is tried again, and any
    other status is permanent."""
    if status in expected or (not expected and 200 <= status < 300):
        return Meaning.DONE
    return Meaning.AGAIN if status in _TEMPORARY or status >= 500 else Meaning.USELESS


def meaning_of_delivery(status: int) -> Meaning:
    """Judge the answer to a webhook. Every failure is tried again, since the message stays true, unless the receiver is
    gone."""
    if 200 <= status < 300:
        return Meaning.DONE
    return Meaning.GONE if status == GONE else Meaning.AGAIN


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """Return the wait that a Retry-After header asks for, up to a limit; None if it is missing or cannot be read."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return LONGEST_RETRY_AFTER if len(text) > 6 else min(timedelta(seconds=int(text)), LONGEST_RETRY_AFTER)
    from email.utils import parsedate_to_datetime  # takes milliseconds to import, and few servers answer with a date

    try:
        at = parsedate_to_datetime(text)
        wait = at - now
    except (TypeError, ValueError, OverflowError):  # a time without a zone cannot be read either
        return None
    return min(max(wait, ZERO), LONGEST_RETRY_AFTER)


def wait_before(asked: timedelta | None, *, base: timedelta, failures: int, cap: timedelta) -> timedelta | None:
    """Return the wait that the server asked for after the `failures`-th failure, but no less than the usual backoff. None
    means the usual backoff."""
    return None if asked is None else max(asked, backoff(base, failures, cap=cap))
