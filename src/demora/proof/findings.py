"""What the checker says: which promises it judged, which not and why, and violations that explain themselves."""

from collections.abc import Iterator, Sequence
from heapq import merge

import msgspec

from .history import ClientEvent, Event, HandlerEvent, SqlEvent, WorldEvent

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
    "I11": "cron",
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


class Bounds(msgspec.Struct, frozen=True):
    """What a run promises of time, in milliseconds: `start` from due to claimed outside of faults, `drain` from `healed` to
    `drained`; and the share of its `slots` that a pace uses while jobs are held, outside of faults. None leaves the promise
    unjudged."""

    start: int | None = None
    drain: int | None = None
    slots: float | None = None


class Violation(msgspec.Struct, frozen=True):
    """A broken promise: the rule, the job (None if it is about no single one), one sentence, and all events of the job."""

    rule: str
    job: str | None
    says: str
    events: tuple[Event, ...] = ()

    def explain(self) -> str:
        """The violation for people, with the events of the job in order, each with the seconds since the first."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        about = "" if self.job is None else f" job {self.job}"
        first = min((event.at for event in self.events), default=0)
        return [f"{self.rule} {RULES[self.rule]}:{about} {self.says}", *(_line(event, first) for event in self.events)]


class Findings(msgspec.Struct, frozen=True):
    """The outcome of a check. `judged` says by what each rule was judged, `not_judged` why not; together they are all
    rules. `counts` counts what was read."""

    violations: list[Violation]
    judged: dict[str, str]
    not_judged: dict[str, str]
    counts: dict[str, int]

    @property
    def ok(self) -> bool:
        return not self.violations

    def of(self, rule: str) -> int:
        """How many violations of a rule there are."""
        return sum(violation.rule == rule for violation in self.violations)

    def explain(self, most: int = 10) -> str:
        """The first violations for people."""
        shown = [violation.explain() for violation in self.violations[:most]]
        more = len(self.violations) - len(shown)
        return "\n\n".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def in_order(*histories: Sequence[Event]) -> tuple[Event, ...]:
    """Histories woven into one by their times; each keeps its own order."""
    return tuple(merge(*histories, key=lambda event: event.at))


def _line(event: Event, first: int) -> str:
    words = " ".join(_words(event))
    return f"  {(event.at - first) / 1000:+10.3f}s {words}"


def _words(event: Event) -> Iterator[str]:
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
    wished = "cancel" if event.wished else None
    yield from _given(worker=event.worker, lease_was=before, lease=after, wished=wished, error=event.error)


def _given(**values: object) -> Iterator[str]:
    for name, value in values.items():
        if value is not None:
            yield f"{name} {value!r}" if isinstance(value, str) else f"{name} {value}"
