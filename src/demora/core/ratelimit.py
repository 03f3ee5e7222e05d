"""Token buckets: how many requests a caller may make at once, and how many a second after that.

A bucket holds up to `burst` tokens and gains `rate` of them a second. Each request takes one. The time is an argument.
"""

from collections import OrderedDict
from collections.abc import Hashable

import msgspec


class Bucket(msgspec.Struct, frozen=True):
    """How many tokens there were at a moment, in seconds of any clock that is never set back."""

    tokens: float
    at: float


class Rate(msgspec.Struct, frozen=True):
    """How fast a bucket fills and how much it holds. A rate of 0 is no limit."""

    per_second: float
    burst: float


def level(bucket: Bucket, rate: Rate, now: float) -> float:
    """The tokens in a bucket now."""
    return min(rate.burst, bucket.tokens + max(0.0, now - bucket.at) * rate.per_second)


class RateLimiter:
    """A bucket for each caller, for the `most` callers that came last.

    A caller that is not remembered has a full bucket. So when there are more callers than buckets, the limit is too generous
    for those who come seldom, and never too strict.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: Hashable, rate: Rate, now: float) -> float:
        """Take a token. Answers 0.0 if there was one, or else in how many seconds there will be."""
        if rate.per_second <= 0:
            return 0.0
        known = self._buckets.get(caller)
        tokens = rate.burst if known is None else level(known, rate, now)
        if tokens < 1.0:
            self._buckets.move_to_end(caller)
            return (1.0 - tokens) / rate.per_second
        self._buckets[caller] = Bucket(tokens - 1.0, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0
