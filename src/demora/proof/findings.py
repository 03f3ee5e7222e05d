"""The report of the checker: which promises it judged, which not and why, and the violations with their events."""

from collections.abc import Iterator, Sequence
from heapq import merge

import msgspec

from .history import ClientEvent, HandlerEvent, HistoryEvent, SqlEvent, WorldEvent

RULES = {
    "I1": "no loss",
    "I2": "one end",
    "I3": "fencing",
    "I4": "no overlap",
    "I5": "attempts",
    "I6": "never early",
    "I7": "on time",
    "I8": "pace",
    "I9": "cancel",
    "I10": "idempotency",
    "I11": "schedules",
    "I12": "dead letters",
    "I13": "webhook",
    "I14": "disposable line",
    "I15": "counts",
    "I16": "liveness",
    "I17": "integrity",
    "I18": "quiet",
    "I19": "expiry",
    "I20": "unique",
}

Fault = tuple[str, str]  # a rule and a sentence
Found = tuple[str | None, Fault]  # a fault, and its job unless it concerns no single one


class Bounds(msgspec.Struct, frozen=True):
    """The limits that a run must keep. `start` is the milliseconds from due to claimed, `drain` those from `healed` to
    `drained`, `slots` the share of its release times that a pace uses while jobs are held, `rescue` the milliseconds after
    which a job that moved must not need a safety net. Times of faults do not count. A limit that is None is not judged."""

    start: int | None = None
    drain: int | None = None
    slots: float | None = None
    rescue: int | None = None


class Violation(msgspec.Struct, frozen=True):
    """A broken promise: the rule, the job (None if it concerns no single one), one sentence, and all events of the job."""

    rule: str
    job: str | None
    says: str
    events: tuple[HistoryEvent, ...] = ()

    def explain(self) -> str:
        """Format the violation for people, with the events of the job in order and the seconds since the first."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        about = "" if self.job is None else f" job {self.job}"
        first = min((event.at for event in self.events), default=0)
        return [f"{self.rule} {RULES[self.rule]}:{about} {self.says}", *(_line(event, first) for event in self.events)]


class Findings(msgspec.Struct, frozen=True):
    """The result of a check. `judged` says what each rule was judged by, `not_judged` why it was not. Each rule is in one of
    the two. `counts` are the numbers of events that were read."""

    violations: list[Violation]
    judged: dict[str, str]
    not_judged: dict[str, str]
    counts: dict[str, int]

    @property
    def ok(self) -> bool:
        return not self.violations

    def of(self, rule: str) -> int:
        """Return the number of violations of a rule."""
        return sum(violation.rule == rule for violation in self.violations)

    def explain(self, most: int = 10) -> str:
        """Format the first violations for people."""
        shown = [violation.explain() for violation in self.violations[:most]]
        more = len(self.violations) - len(shown)
        return "\n\n".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def in_order(*histories: Sequence[HistoryEvent]) -> tuple[HistoryEvent, ...]:
    """Merge histories by their times. Each keeps its own order."""
    return tuple(merge(*histories, key=lambda event: event.at))


def _line(event: HistoryEvent, first: int) -> str:
    words = " ".join(_words(event))
    return f"  {(event.at - first) / 1000:+10.3f}s {words}"


def _words(event: HistoryEvent) -> Iterator[str]:
    match event:
        case SqlEvent():
            yield from ("sql    ", f"#{event.seq}", event.kind)
            yield from _sql_words(event)
        case ClientEvent():
            yield from ("client ", event.kind, event.op, f"call {event.call}", *event.jobs)
            yield from _given(key=event.key, request=event.request, due_at=event.due_at, answer=event.answer)
        case HandlerEvent():
            yield from ("handler", event.kind, f"token {event.token}")
            yield from _given(attempt=event.attempt, worker=event.worker, outcome=event.outcome)
        case WorldEvent():
            yield from ("world  ", event.kind, event.detail or "")


def _sql_words(event: SqlEvent) -> Iterator[str]:
    if event.kind in ("accepted", "stale"):
        yield f"{event.wrote} under token {event.token}; the job is {event.old_status} with token {event.old_token}"
    else:
        yield f"{event.old_status or ''} → {event.status or ''}".strip()
        yield f"token {event.token} attempt {event.token - event.credits} of {event.max_retries + 1}"
        yield f"generation {event.generation} due {event.due_at - event.at:+}ms"
    before = None if event.old_lease_until is None else f"{event.old_lease_until - event.boot:+}ms"
    after = None if event.lease_until is None else f"{event.lease_until - event.boot:+}ms"
    asked = "cancel" if event.cancel_requested else None
    yield from _given(worker=event.worker, lease_was=before, lease=after, asked=asked, error=event.error)


def _given(**values: object) -> Iterator[str]:
    for name, value in values.items():
        if value is not None:
            yield f"{name} {value!r}" if isinstance(value, str) else f"{name} {value}"
