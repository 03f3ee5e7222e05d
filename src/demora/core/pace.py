"""Pace: when a queue releases its delayed jobs, so that they do not use up what real-time jobs need. Only this module has
the rule, and only this module reads requests to change a pace. So Python, HTTP, settings and the command line refuse the
same requests.

A cycle has `burst` release times, each `stagger` after the one before. The next cycle begins `gap` after the first release
time of this one. At each release time one held job is released.

- A stagger that was not given is 30 s, or less if the burst would not fit into the gap otherwise. With a burst of 1 there is
  none.
- A release that happens late counts for its release time, so nothing drifts.
- If no job is held when a cycle could begin, the cycle begins with the next job that is held.
- Release times that pass while no job is held are lost.
- Release times that pass while a job is held are made up at the next look. If a whole cycle has passed meanwhile, the next
  cycle begins now, and nothing from before is made up.
- A change of mode or policy keeps the next release time. The one after it follows the new rate.

Times are whole milliseconds of the database's clock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice
from typing import Any, Literal

import msgspec

from ..errors import Invalid
from .action import OWN_QUEUES
from .job import Lane, Priority
from .request import check_queue
from .spans import MILLISECOND, ZERO, say, span, span_ms

EVERY_QUEUE = "*"  # in place of a queue's name: all queues that have no pace of their own
USUAL_STAGGER = timedelta(seconds=30)


class Governs(Enum):
    """Which delayed jobs of a queue its pace holds back. It never holds back jobs that were enqueued to run now."""

    RETRIES = "retries"
    SCHEDULED = "scheduled"
    BOTH = "both"

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return _LANES[self]


_LANES = {
    Governs.RETRIES: (Lane.RETRY,),
    Governs.SCHEDULED: (Lane.SCHEDULED,),
    Governs.BOTH: (Lane.SCHEDULED, Lane.RETRY),
}


class Rate(msgspec.Struct, frozen=True):
    """How fast a queue releases jobs: at most `burst` in a `gap`. With None as the `stagger`, it follows from the two."""

    gap: timedelta
    burst: int
    stagger: timedelta | None = None

    @property
    def apart(self) -> timedelta:
        """The time between two release times of a cycle."""
        if self.burst == 1:
            return ZERO
        return min(USUAL_STAGGER, self.widest) if self.stagger is None else self.stagger

    @property
    def widest(self) -> timedelta:
        """The longest stagger with which the burst fits into the gap."""
        return span_ms(self.gap) // self.burst * MILLISECOND

    @property
    def fits(self) -> bool:
        """Whether the next cycle can begin when the gap is over."""
        return self.burst * span_ms(self.apart) <= span_ms(self.gap)

    @property
    def cycle(self) -> int:
        """The milliseconds from the beginning of a cycle to that of the next."""
        return max(span_ms(self.gap), self.burst * span_ms(self.apart))

    @property
    def reach(self) -> int:
        """A number of jobs that is greater than one plan can release."""
        return 2 * self.burst


class Pace(msgspec.Struct, frozen=True):
    """The policy of a queue. `rapid` is its rate while no real-time job waits in this queue, or in the queues to `protect`.
    With None there is only the normal rate, so that no job is released before its gap is over."""

    gap: timedelta = timedelta(seconds=120)
    burst: int = 3
    stagger: timedelta | None = None
    rapid: Rate | None = None
    governs: Governs = Governs.BOTH
    protect: tuple[str, ...] = ()

    def rate(self, *, quiet: bool) -> Rate:
        """Return the rate to use now. `quiet` says that no real-time job waits."""
        if quiet and self.rapid is not None:
            return self.rapid
        return Rate(self.gap, self.burst, self.stagger)

    def mode(self, *, quiet: bool) -> str:
        return "rapid" if quiet and self.rapid is not None else "normal"

    def holds(self, lane: int) -> bool:
        """Return whether the pace holds back the jobs of a lane."""
        return lane in self.governs.lanes

    def protected(self, queue: str) -> tuple[str, ...]:
        """Return the queues whose waiting real-time jobs rule out the rapid rate."""
        return self.protect or (queue,)


class PaceState(msgspec.Struct, frozen=True):
    """The progress of a queue. `next_at` is its next release time, number `step` of the cycle that began at `cycle_at`; with
    step 0 it is the earliest beginning of the next cycle. `seen_at` is when the state was written."""

    cycle_at: int
    step: int
    next_at: int
    seen_at: int
    released_at: int | None = None
    released: int = 0
    former_at: int | None = None  # the release before the last one

    @property
    def last_gap(self) -> timedelta | None:
        """How long after the release before it the last one was; None if there was none."""
        if self.released_at is None or self.former_at is None:
            return None
        return max(self.released_at - self.former_at, 0) * MILLISECOND


class Release(msgspec.Struct, frozen=True):
    """A released job. `release_at` is the release time that it used."""

    id: str
    queue: str
    priority: Priority
    release_at: datetime


class Plan(msgspec.Struct, frozen=True):
    """What to do now: release one held job for each of the `release_times`, in the queue's order, then store the state.

    `states` are the states after the first release time, the first two, and so on. If only some of the jobs can be released,
    the one for their number is stored, so that the release times of the others stay unused.
    """

    release_times: tuple[int, ...]
    state: PaceState
    states: tuple[PaceState, ...] = ()


class DelayedStats(msgspec.Struct, frozen=True):
    """The delayed jobs of a queue with a pace. `ready_now` of them are due, `ready_in_hour` are due within the hour, and
    `waiting_for_gap` are due and wait until the gap is over. The seconds until the next release are None if no job is
    delayed, and those since the last release are None if there was none."""

    total_delayed: int
    ready_now: int
    ready_in_hour: int
    waiting_for_gap: int
    next_release_in_seconds: float | None
    time_since_last_release_seconds: float | None


USUAL_PACE = Pace()
USUAL_RAPID = Rate(timedelta(seconds=30), 5)


def begin(now: int) -> PaceState:
    """Return the state of a queue that never had a pace. Its first release is immediate."""
    return PaceState(cycle_at=now, step=0, next_at=now, seen_at=now)


def plan(rate: Rate, state: PaceState, now: int, dues: Sequence[int]) -> Plan:
    """Return the releases that are possible now. `dues` are the due times of the held jobs in order, of all or of the first
    `Rate.reach`. Fewer are enough if the plan does not release all of them."""
    state, release_times, states = _as_of(state, now), list[int](), list[PaceState]()
    while len(release_times) < len(dues):
        first = dues[len(release_times)]
        state = _without_missed(rate, state, now)
        release_at = state.next_at if state.step else _beginning(rate, max(state.next_at, first), now)
        if release_at > now:
            break
        state = _after(rate, state, release_at)
        if first <= release_at:
            release_times.append(release_at)
            states.append(_released(state, now, len(release_times)))
    return Plan(tuple(release_times), _released(state, now, len(release_times)), tuple(states))


def _released(state: PaceState, now: int, jobs: int) -> PaceState:
    """Return the state after so many more jobs are released now."""
    if not jobs:
        return msgspec.structs.replace(state, seen_at=now)
    released = state.released + jobs
    return msgspec.structs.replace(state, seen_at=now, released_at=now, released=released, former_at=state.released_at)


def look_at(state: PaceState, now: int, first_due: int) -> int:
    """Return when to plan next: no release is possible earlier. `first_due` is when the first job is due, held or still to
    come."""
    return max(now if now < state.seen_at else state.next_at, first_due)


def next_release(rate: Rate, state: PaceState, now: int, first_due: int) -> int:
    """Return when the first job, held or still to come, is released if the mode does not change. The job cannot use a
    release time before it is due."""
    state = _as_of(state, now)
    while True:
        state = _without_missed(rate, state, now)
        release_at = state.next_at if state.step else _beginning(rate, max(state.next_at, first_due), now)
        if release_at >= first_due:
            return max(release_at, now)
        state = _after(rate, state, release_at)


def forecast(rate: Rate, state: PaceState, now: int, nth: int) -> int:
    """Estimate when the `nth` held job (the first is 1) is released, if the mode and the jobs before it do not change."""
    return next(islice(_upcoming(rate, state, now), nth - 1, None))


def delayed_stats(
    rate: Rate, state: PaceState, now: int, first_due: int | None, *, held: int, coming: int, soon: int
) -> DelayedStats:
    """Return the figures of a queue with `held` jobs that are due and `coming` ones that are due later, of which `soon` are
    due within the hour. `first_due` is when the first of them is due."""
    dues = [now] * min(held, rate.reach)
    if held and first_due is not None:
        dues[0] = first_due  # it may use a release time that has passed; of the others that is unknown
    usable, last = len(plan(rate, state, now, dues).release_times), state.released_at
    next_at = None if first_due is None else next_release(rate, state, now, first_due)
    return DelayedStats(
        total_delayed=held + coming,
        ready_now=held,
        ready_in_hour=soon,
        waiting_for_gap=held - usable,
        next_release_in_seconds=None if next_at is None else (next_at - now) / 1000,
        time_since_last_release_seconds=None if last is None else max(now - last, 0) / 1000,
    )


def _upcoming(rate: Rate, state: PaceState, now: int) -> Iterator[int]:
    """Yield the times at which held jobs are released, one after another, if none is late."""
    state = _as_of(state, now)
    while True:
        state = _without_missed(rate, state, now)
        release_at = state.next_at if state.step else _beginning(rate, state.next_at, now)
        yield max(release_at, now)
        state = _after(rate, state, release_at)


def _as_of(state: PaceState, now: int) -> PaceState:
    """Return the state for the clock as it is now. If the clock was set back, all times move back by as much as is known."""
    lost = state.seen_at - now
    if lost <= 0:
        return state
    return msgspec.structs.replace(state, cycle_at=state.cycle_at - lost, next_at=state.next_at - lost, seen_at=now)


def _without_missed(rate: Rate, state: PaceState, now: int) -> PaceState:
    """Return the state without the rest of its cycle if a whole further cycle has passed since."""
    if state.step == 0:
        return state
    last = state.next_at + (max(rate.burst - state.step, 1) - 1) * span_ms(rate.apart)
    end = _end(rate, state.cycle_at, last)
    return state if now < end + rate.cycle else msgspec.structs.replace(state, step=0, next_at=end)


def _beginning(rate: Rate, at: int, now: int) -> int:
    """Return when a cycle begins that may begin from the time `at` on: then, or now if all of it would be over by now."""
    return at if now < at + rate.cycle else now


def _after(rate: Rate, state: PaceState, release_at: int) -> PaceState:
    """Return the state after a release time was used or lost."""
    cycle_at, step = (state.cycle_at if state.step else release_at), state.step + 1
    if step < rate.burst:
        return msgspec.structs.replace(state, cycle_at=cycle_at, step=step, next_at=release_at + span_ms(rate.apart))
    return msgspec.structs.replace(state, cycle_at=cycle_at, step=0, next_at=_end(rate, cycle_at, release_at))


def _end(rate: Rate, cycle_at: int, last: int) -> int:
    """Return when the next cycle may begin after one that began at `cycle_at` and has its last release time at `last`."""
    return max(cycle_at + span_ms(rate.gap), last + span_ms(rate.apart))


# Requests to change the pace of a queue, in part or as a whole

LONGEST_GAP = timedelta(days=366)
MOST_BURST = 10_000
MOST_PROTECTED = 100
Fit = Literal["fit"]  # in place of a stagger: one with which the burst fits into the gap
_NAMES = ("gap", "burst", "stagger", "rapid_gap", "rapid_burst", "rapid_stagger", "rapid", "governs", "protect")


class RateRequest(msgspec.Struct, frozen=True):
    """A change of a rate. None leaves a value as it is."""

    gap: timedelta | None = None
    burst: int | None = None
    stagger: timedelta | Fit | None = None

    def over(self, rate: Rate, where: str = "") -> Rate:
        """Return the changed rate. `Invalid` if its burst does not fit into its gap. A stagger that was never given always
        fits."""
        changed = Rate(
            rate.gap if self.gap is None else self.gap,
            rate.burst if self.burst is None else self.burst,
            None if self.stagger == "fit" else rate.stagger if self.stagger is None else self.stagger,
        )
        if changed.gap == ZERO:
            raise Invalid(f"{where}gap", "a gap of zero holds nothing back; remove the pace instead")
        if not changed.fits:
            raise Invalid(f"{where}stagger", _too_wide(changed))
        return Rate(changed.gap, 1) if changed.burst == 1 else changed


class PaceRequest(msgspec.Struct, frozen=True):
    """A change of a pace. None leaves a value as it is; `rapid` True adds a rapid rate, False removes it."""

    gap: timedelta | None = None
    burst: int | None = None
    stagger: timedelta | Fit | None = None
    rapid: RateRequest | bool | None = None
    governs: Governs | None = None
    protect: tuple[str, ...] | None = None

    def over(self, pace: Pace) -> Pace:
        """Return the changed pace, checked as a whole."""
        rate = RateRequest(self.gap, self.burst, self.stagger).over(pace.rate(quiet=False))
        return Pace(
            *(rate.gap, rate.burst, rate.stagger),
            rapid=self._rapid(pace),
            governs=pace.governs if self.governs is None else self.governs,
            protect=pace.protect if self.protect is None else self.protect,
        )

    def _rapid(self, pace: Pace) -> Rate | None:
        if self.rapid is False:
            return None
        if isinstance(self.rapid, RateRequest):
            return self.rapid.over(pace.rapid or USUAL_RAPID, "rapid_")
        return pace.rapid or USUAL_RAPID if self.rapid else pace.rapid


def check_paced(queue: str, field: str = "queue") -> str:
    """Return the name of a queue that gets a pace, or `*` for all queues without one of their own."""
    return queue if queue == EVERY_QUEUE else check_queue(queue, field)


def left_out_with(queue: str) -> tuple[str, ...]:
    """Return the queues that a new pace of this queue leaves out: they get none unless they have one. The pace of `*` leaves
    out demora's own queues."""
    return OWN_QUEUES if queue == EVERY_QUEUE else ()


def request_of(pace: Pace) -> PaceRequest:
    """Return the request for exactly this pace."""
    rapid = _whole(pace.rapid) if pace.rapid else False
    rate = _whole(pace.rate(quiet=False))
    return check_pace(PaceRequest(rate.gap, rate.burst, rate.stagger, rapid, pace.governs, pace.protect))


def check_pace(request: PaceRequest) -> PaceRequest:
    """Return the checked request. `Invalid` names the field and says what would be right."""
    rapid = request.rapid
    if isinstance(rapid, RateRequest):
        rapid = _rate(rapid, "rapid_")
    rate = _rate(RateRequest(request.gap, request.burst, request.stagger))
    protect = None if request.protect is None else _protect(request.protect)
    return PaceRequest(rate.gap, rate.burst, rate.stagger, rapid, request.governs, protect)


def make_pace_request(
    *,
    gap: timedelta | str | None = None,
    burst: int | None = None,
    stagger: timedelta | str | None = None,
    rapid_gap: timedelta | str | None = None,
    rapid_burst: int | None = None,
    rapid_stagger: timedelta | str | None = None,
    rapid: bool | None = None,
    governs: Governs | str | None = None,
    protect: Iterable[str] | None = None,
) -> PaceRequest:
    """Return a checked request from single values. Spans are text or `timedelta`; a stagger may be `fit`."""
    given = (rapid_gap, rapid_burst, rapid_stagger)
    if rapid is False and any(value is not None for value in given):
        raise Invalid("rapid", "is off; give no rapid gap, burst or stagger with it")
    fast = RateRequest(_span(rapid_gap, "rapid_gap"), rapid_burst, _stagger(rapid_stagger, "rapid_stagger"))
    return check_pace(
        PaceRequest(
            gap=_span(gap, "gap"),
            burst=burst,
            stagger=_stagger(stagger, "stagger"),
            rapid=fast if any(value is not None for value in given) else rapid,
            governs=None if governs is None else check_governs(governs),
            protect=None if protect is None else _protect(protect),
        )
    )


def read_pace(value: str | Mapping[str, Any], field: str) -> PaceRequest | None:
    """Read a setting: `gap=2m burst=3 stagger=30s`, the same as a table, or `off`, which returns None."""
    if value == "off":
        return None
    if isinstance(value, str):
        value = _pairs(value, field)
    try:
        values = _typed(value)
        if unknown := [name for name in values if name not in _NAMES]:
            raise Invalid(field, f"{unknown[0]!r} is not a part of a pace; give {', '.join(_NAMES)}, or 'off'")
        return make_pace_request(**values)
    except TypeError:
        raise Invalid(field, "protect: must be a list of queues") from None
    except Invalid as problem:
        where = "" if problem.field == field else f"{problem.field}: "
        raise Invalid(field, f"{where}{problem.reason}") from None


def check_governs(governs: Governs | str) -> Governs:
    if isinstance(governs, Governs):
        return governs
    names = [kind.value for kind in Governs]
    if governs not in names:
        raise Invalid("governs", f"must be one of {', '.join(names)}")
    return Governs(governs)


def say_pace(pace: Pace) -> str:
    """Format a pace: `3 in 2m, 30s apart; rapid 5 in 30s, 6s apart; governs both`."""
    rates = [_say_rate(pace.rate(quiet=False)), *(["rapid " + _say_rate(pace.rapid)] if pace.rapid else [])]
    protects = [f"protects {', '.join(pace.protect)}"] if pace.protect else []
    return "; ".join([*rates, f"governs {pace.governs.value}", *protects])


def say_request(request: PaceRequest) -> str:
    """Format a request as settings write it: `gap=2m burst=3 rapid_gap=30s`."""
    rapid = request.rapid if isinstance(request.rapid, RateRequest) else RateRequest()
    switch = {True: "on", False: "off"}.get(request.rapid) if isinstance(request.rapid, bool) else None
    parts = {
        "gap": request.gap,
        "burst": request.burst,
        "stagger": request.stagger,
        "rapid": switch,
        "rapid_gap": rapid.gap,
        "rapid_burst": rapid.burst,
        "rapid_stagger": rapid.stagger,
        "governs": request.governs and request.governs.value,
        "protect": request.protect and "+".join(request.protect),
    }
    given = ((name, value) for name, value in parts.items() if value is not None)
    return " ".join(f"{name}={say(value) if isinstance(value, timedelta) else value}" for name, value in given)


def say_briefly(pace: Pace) -> str:
    """Format the normal rate alone: `3 in 2m`."""
    return f"{pace.burst} in {say(pace.gap)}"


def _say_rate(rate: Rate) -> str:
    return f"{rate.burst} in {say(rate.gap)}" + (f", {say(rate.apart)} apart" if rate.burst > 1 else "")


def _too_wide(rate: Rate) -> str:
    took = f"{rate.burst} releases {say(rate.apart)} apart take {say(rate.burst * rate.apart)}"
    return f"{took}, longer than the gap of {say(rate.gap)}; at most {say(rate.widest)} fits"


def _whole(rate: Rate) -> RateRequest:
    return RateRequest(rate.gap, rate.burst, "fit" if rate.stagger is None else rate.stagger)


def _rate(rate: RateRequest, where: str = "") -> RateRequest:
    if rate.burst is not None and (
        not isinstance(rate.burst, int) or not 1 <= rate.burst <= MOST_BURST or rate.burst is True
    ):
        raise Invalid(f"{where}burst", f"must be a whole number from 1 to {MOST_BURST}")
    return RateRequest(_span(rate.gap, f"{where}gap"), rate.burst, _stagger(rate.stagger, f"{where}stagger"))


def _span(value: timedelta | str | None, field: str) -> timedelta | None:
    return None if value is None else span(value, field, most=LONGEST_GAP)


def _stagger(value: timedelta | str | None, field: str) -> timedelta | Fit | None:
    return "fit" if value == "fit" else _span(value, field)


def _protect(queues: Iterable[str]) -> tuple[str, ...]:
    if isinstance(queues, str):
        raise Invalid("protect", "must be a list of queues")
    names = tuple(dict.fromkeys(check_queue(queue, "protect") for queue in queues))
    if len(names) > MOST_PROTECTED:
        raise Invalid("protect", f"at most {MOST_PROTECTED} queues can be protected")
    return names


def _pairs(text: str, field: str) -> dict[str, str]:
    parts = [part.partition("=") for part in text.replace(",", " ").split()]
    if any(not sign for _, sign, _ in parts):
        raise Invalid(field, "write for instance 'gap=2m burst=3 stagger=30s', or 'off'")
    return {name: value for name, _, value in parts}


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a setting with their types: text may stand for a number, a switch or several names."""
    values = dict(given)
    nested = values.pop("rapid", None)
    if isinstance(nested, Mapping):
        values |= {f"rapid_{name}": value for name, value in nested.items()}
    elif nested is not None:
        values["rapid"] = _switch(nested)
    for name in ("burst", "rapid_burst"):
        if isinstance(values.get(name), str) and values[name].isdecimal():
            values[name] = int(values[name])
    if isinstance(values.get("protect"), str):
        values["protect"] = tuple(name for name in values["protect"].split("+") if name)
    return values


def _switch(value: Any) -> bool:
    if value in (True, "on", "true"):
        return True
    if value in (False, "off", "false"):
        return False
    raise Invalid("rapid", "must be on or off, or a table")
