"""Judges the life of one job by its SQL events, in the order of their commits: one end, fencing, leases, attempts, cancels.

The rules follow the promises, not the engines: each event must be allowed by the events before it and by the job's own
columns. A job whose first event is not `added` existed before the audit; it is judged from that event on.
"""

from collections.abc import Callable, Iterator, Sequence

from .findings import Fault
from .history import SqlEvent

WAITING = frozenset({"PENDING", "QUEUED", "RETRYING"})
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
TRACES = frozenset({"accepted", "stale"})  # not steps of a job, but the results of a worker's writes
SIGNED = frozenset({"renewed", "settled"})
LEAVES_ITS_END = frozenset({"retried", "restored", "removed"})


def judge(events: Sequence[SqlEvent]) -> Iterator[Fault]:
    """Yield the faults in one life, at most one for each event."""
    life = _Life()
    for event in events:
        fault = life.see(event)
        if fault is not None:
            yield fault


def judge_signatures(events: Sequence[SqlEvent]) -> Iterator[Fault]:
    """Each renewal and settlement is followed by the accepted write of a worker that holds the job's token."""
    unsigned: SqlEvent | None = None
    for event in events:
        if event.kind == "accepted":
            unsigned = None
            if event.token != event.old_token:
                yield (
                    "I3",
                    f"accepted a worker's {event.wrote} under token {event.token} when its token was {event.old_token}",
                )
        elif event.kind != "stale":
            yield from _forged(unsigned)
            unsigned = event if event.kind in SIGNED else None
    yield from _forged(unsigned)


def judge_unique(events: Sequence[SqlEvent]) -> Iterator[tuple[str, Fault]]:
    """At most one job of a type and key waits without having been claimed. Takes the events of all jobs, in order."""
    waiting: dict[str, str] = {}  # which job, by type and key
    for event in events:
        if event.unique is None or event.kind in TRACES:
            continue
        if event.kind == "added":
            other = waiting.setdefault(event.unique, event.job)
            if other != event.job:
                yield event.job, ("I20", f"was added while {other} waited, which has the same key")
        elif event.status not in WAITING and waiting.get(event.unique) == event.job:
            del waiting[event.unique]


def is_lapse(event: SqlEvent) -> bool:
    """Whether the job was settled because its lease ran out: then its error is `WorkerLost`, whatever its new status."""
    return event.error is not None and event.error.startswith("WorkerLost:")


class _Life:
    """The facts about a job between two events."""

    __slots__ = ("cancelled", "credits", "ended", "generation", "known", "retries", "status", "token")

    def __init__(self) -> None:
        self.known = False
        self.status: str | None = None
        self.token: int | None = None
        self.credits = self.retries = 0
        self.generation = 0
        self.ended = 0  # the last generation that ended
        self.cancelled = False  # it ended while it waited

    def see(self, event: SqlEvent) -> Fault | None:
        """Judge the event, then adopt its facts."""
        if event.kind in TRACES:
            return _stale(event) if event.kind == "stale" else None
        fault = self._second_end(event) or self._gap(event) or JUDGES[event.kind](self, event)
        self._learn(event)
        return fault

    def _learn(self, event: SqlEvent) -> None:
        self.known = event.kind != "removed"  # an id that is added again begins a new life
        self.status, self.token = event.status, event.token
        self.credits, self.retries, self.generation = event.credits, event.retries, event.generation
        if event.status in ENDED:
            self.ended = event.generation
            self.cancelled = event.kind == "cancelled"
        elif event.kind == "added":
            self.ended = 0

    def _second_end(self, event: SqlEvent) -> Fault | None:
        if event.old_status in ENDED and event.kind not in LEAVES_ITS_END:
            if event.kind == "claimed" and self.cancelled:
                return "I9", "was claimed after its cancel had been confirmed"
            return "I2", f"had ended {event.old_status} and was {event.kind} nevertheless"
        if event.status in ENDED and event.generation == self.ended and event.kind != "added":
            return "I2", f"ended a second time in generation {event.generation}, as {event.status}"
        return None

    def _gap(self, event: SqlEvent) -> Fault | None:
        if self.known and (event.old_status != self.status or event.old_token != self.token):
            was, now = f"{self.status} with token {self.token}", f"{event.old_status} with token {event.old_token}"
            return "I17", f"was {was} after one event and {now} before the next: a change left no event"
        return None

    def _added(self, event: SqlEvent) -> Fault | None:
        if event.status not in WAITING:
            return "I2", f"was added as {event.status}"
        return ("I5", f"was added with token {event.token}") if event.token else None

    def _claimed(self, event: SqlEvent) -> Fault | None:
        attempt = event.token - event.credits
        if event.old_status == "PROCESSING":
            return "I4", "was claimed while it was leased"
        if event.cancel_requested:
            return "I9", "was claimed again although its cancel had been confirmed"
        if event.at < event.due_at:
            return "I6", f"was claimed {event.due_at - event.at} ms before it was due"
        if attempt == 1 and event.expires_at is not None and event.at >= event.expires_at:
            return "I19", f"was claimed for the first time {event.at - event.expires_at} ms after it expired"
        return self._counted(event) or (
            ("I5", f"began attempt {attempt} of {event.max_retries + 1}") if attempt > event.max_retries + 1 else None
        )

    def _counted(self, event: SqlEvent) -> Fault | None:
        before = event.old_token or 0
        if event.token <= before:
            return "I3", f"was claimed under token {event.token} after token {before}: tokens must grow"
        if event.token > before + 1:
            return "I5", f"was claimed once and its claims went from {before} to {event.token}"
        if self.known and event.credits != self.credits:
            return "I5", "was claimed and the claim was not counted as an attempt"
        return None

    def _renewed(self, event: SqlEvent) -> Fault | None:
        if event.old_lease_until is not None and event.boot >= event.old_lease_until:
            return "I3", f"was renewed {event.boot - event.old_lease_until} ms after its lease had run out"
        return self._same_token(event)

    def _settled(self, event: SqlEvent) -> Fault | None:
        return (
            self._same_token(event)
            or (_lapse(event) if is_lapse(event) else _by_its_worker(event))
            or self._same_generation(event)
            or _as_requested(event)
            or self._accounted(event)
        )

    def _accounted(self, event: SqlEvent) -> Fault | None:
        """Return a fault if the run was counted wrongly, or was the last one and did not end the job."""
        counted = not self.known or event.credits == self.credits
        if self.known and event.credits not in (self.credits, self.credits + 1):
            return "I5", f"was settled once and its credits went from {self.credits} to {event.credits}"
        if not counted and (is_lapse(event) or event.status == "COMPLETED"):
            return "I5", "was run and the run was not counted as an attempt"
        if self.known and event.retries != self.retries + (event.status == "RETRYING" and counted):
            return "I5", f"went from {self.retries} retries to {event.retries} by becoming {event.status}"
        return _dead_letter_fault(event) if counted else None

    def _cancelled(self, event: SqlEvent) -> Fault | None:
        return self._same_token(event) or self._same_generation(event)

    def _retried(self, event: SqlEvent) -> Fault | None:
        if event.old_status == "COMPLETED":
            return "I2", "was COMPLETED and retried"
        if self.known and event.generation != self.generation + 1:
            return "I2", f"was retried and went from generation {self.generation} to {event.generation}"
        if event.token != event.credits or event.retries or event.cancel_requested:
            left = "with its old request to cancel" if event.cancel_requested else "without all its attempts"
            return "I12", f"was retried by hand {left}"
        return self._same_token(event)

    def _restored(self, event: SqlEvent) -> Fault | None:
        """A cancel was undone. A job that was never claimed looks as if it had been retried."""
        if event.old_status != "CANCELLED":
            return "I2", f"was {event.old_status} and its cancel was undone"
        if self.known and event.generation != self.generation + 1:
            return "I2", f"was restored and went from generation {self.generation} to {event.generation}"
        return self._same_token(event)

    def _changed(self, event: SqlEvent) -> Fault | None:
        if event.status in ENDED:
            return "I3", f"became {event.status} without a lease"
        return self._same_token(event) or self._same_generation(event)

    def _removed(self, event: SqlEvent) -> Fault | None:
        return None if event.old_status in ENDED else ("I1", f"was removed while it was {event.old_status}")

    def _same_token(self, event: SqlEvent) -> Fault | None:
        if event.token != event.old_token:
            return "I3", f"was {event.kind} and went from token {event.old_token} to {event.token} without a claim"
        return None

    def _same_generation(self, event: SqlEvent) -> Fault | None:
        if self.known and event.generation != self.generation:
            return "I2", f"was {event.kind} and went from generation {self.generation} to {event.generation}"
        return None


def _stale(event: SqlEvent) -> Fault | None:
    held = event.old_status == "PROCESSING" and event.old_token == event.token and event.old_lease_until is not None
    if not held or event.old_lease_until is None:
        return None
    lapsed = event.boot >= event.old_lease_until
    if lapsed is (event.wrote == "lapse"):
        return "I3", f"refused a worker's {event.wrote} under token {event.token} although its lease allowed it"
    return None


def _forged(event: SqlEvent | None) -> Iterator[Fault]:
    if event is not None:
        yield "I3", f"was {event.kind} under token {event.token}, and no worker with that token wrote it"


def _lapse(event: SqlEvent) -> Fault | None:
    if event.old_lease_until is not None and event.boot < event.old_lease_until:
        return "I4", f"was taken from its worker {event.old_lease_until - event.boot} ms before the lease ran out"
    return None


def _by_its_worker(event: SqlEvent) -> Fault | None:
    if event.old_lease_until is not None and event.boot >= event.old_lease_until:
        return "I3", f"was settled by a worker whose lease had run out {event.boot - event.old_lease_until} ms before"
    return None


def _as_requested(event: SqlEvent) -> Fault | None:
    if event.cancel_requested and event.status not in ("COMPLETED", "CANCELLED"):
        return "I9", f"became {event.status} although its cancel had been confirmed"
    return None


def _dead_letter_fault(event: SqlEvent) -> Fault | None:
    attempt, most = event.token - event.credits, event.max_retries + 1
    if event.status == "RETRYING" and attempt >= most:
        return "I12", f"is to be retried after attempt {attempt} of {most}"
    if event.status == "FAILED" and is_lapse(event) and attempt < most:
        return "I12", f"became a dead letter after its worker was lost in attempt {attempt} of {most}"
    if event.status == "FAILED" and not event.error:
        return "I12", "became a dead letter without an error"
    return None


def _token_only(life: _Life, event: SqlEvent) -> Fault | None:
    return life._same_token(event)


JUDGES: dict[str, Callable[[_Life, SqlEvent], Fault | None]] = {
    "added": _Life._added,
    "claimed": _Life._claimed,
    "renewed": _Life._renewed,
    "settled": _Life._settled,
    "cancel_requested": _token_only,
    "lapsed": _token_only,
    "cancelled": _Life._cancelled,
    "retried": _Life._retried,
    "restored": _Life._restored,
    "changed": _Life._changed,
    "removed": _Life._removed,
}
