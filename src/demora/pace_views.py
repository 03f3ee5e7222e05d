"""How paces are shown: the policy, and the figures that say how it goes."""

from datetime import datetime

import msgspec

from .core.pace import Rate, forecast, plan
from .core.spans import from_ms, span_ms, timestamp, to_ms
from .pacing import Pacing


class RateView(msgspec.Struct, frozen=True):
    """Spans in milliseconds."""

    gap: int
    burst: int
    stagger: int


class PaceView(msgspec.Struct, frozen=True, rename="camel"):
    """A pace, who set it, and how it stands. `readyNow` jobs are due, `waitingForGap` of them have no slot yet."""

    gap: int
    burst: int
    stagger: int
    rapid: RateView | None
    governs: str
    protect: list[str]
    set_at: str
    set_by: str
    mode: str
    total_delayed: int
    ready_now: int
    ready_in_hour: int
    waiting_for_gap: int
    next_release_in_seconds: float | None
    time_since_last_release_seconds: float | None


def pace_view(pacing: Pacing | None) -> PaceView | None:
    if pacing is None:
        return None
    pace, now = pacing.pace, to_ms(pacing.now)
    rate = pace.rate(quiet=pacing.quiet)
    usable = len(plan(rate, pacing.state, now, [now] * min(pacing.held, rate.reach)).slots)
    release, last = _next_release(pacing, rate, now), pacing.state.released_at
    return PaceView(
        *(span_ms(pace.gap), pace.burst, span_ms(pace.stagger)),
        rapid=None
        if pace.rapid is None
        else RateView(span_ms(pace.rapid.gap), pace.rapid.burst, span_ms(pace.rapid.stagger)),
        governs=pace.governs.value,
        protect=list(pace.protect),
        set_at=timestamp(pacing.set_at),
        set_by=pacing.set_by,
        mode=pace.mode(quiet=pacing.quiet),
        total_delayed=pacing.held + pacing.coming,
        ready_now=pacing.held,
        ready_in_hour=pacing.soon,
        waiting_for_gap=pacing.held - usable,
        next_release_in_seconds=None if release is None else (release - now) / 1000,
        time_since_last_release_seconds=None if last is None else max(now - last, 0) / 1000,
    )


def next_release_at(pacing: Pacing) -> datetime | None:
    """When the next job is let go, as far as it can be seen."""
    now = to_ms(pacing.now)
    release = _next_release(pacing, pacing.pace.rate(quiet=pacing.quiet), now)
    return None if release is None else from_ms(release)


def _next_release(pacing: Pacing, rate: Rate, now: int) -> int | None:
    if pacing.first_due_at is None:
        return None
    return max(forecast(rate, pacing.state, now, 1), to_ms(pacing.first_due_at))
