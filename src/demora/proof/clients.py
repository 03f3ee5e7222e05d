"""Compares the answers that callers got with SQL: confirmed jobs exist, confirmed requests are recorded, a key has one job.

A call without a known outcome may or may not have happened, so it is not judged.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from .findings import Fault
from .history import ClientEvent, HandlerEvent, SqlEvent

Lives = Mapping[str, Sequence[SqlEvent]]
REUSED = frozenset({"422", "KeyReused"})


class Calls:
    """The calls of a history: requests by the id of the call, and answers."""

    def __init__(self, events: Sequence[ClientEvent]) -> None:
        self.asked = {event.call: event for event in events if event.kind == "invoke"}
        self.answers = [event for event in events if event.kind != "invoke"]

    def ok(self, op: str) -> Iterator[tuple[ClientEvent, ClientEvent]]:
        """Yield the request and the answer of each successful call."""
        for answer in self.answers:
            if answer.kind == "ok" and answer.op == op:
                yield self.asked.get(answer.call, answer), answer

    def deleted(self) -> set[str]:
        """Return the jobs that a caller tried to delete, successfully or not."""
        return {job for asked in self.asked.values() if asked.op == "delete" for job in asked.jobs}


def judge_adds(calls: Calls, known: Set[str], lives: Lives) -> Iterator[tuple[str, Fault]]:
    """Confirmed jobs exist, unless they were removed, and are due no earlier than the caller asked."""
    deleted = calls.deleted()
    for asked, answer in calls.ok("add"):
        for job in answer.jobs:
            life = lives.get(job, ())
            removed = job in deleted or any(event.kind == "removed" for event in life)
            if job not in known and not removed:
                yield job, ("I1", f"was confirmed to call {answer.call} and does not exist")
            yield from ((job, fault) for fault in _due(asked, life, "added"))


def judge_requests(calls: Calls, lives: Lives) -> Iterator[tuple[str, Fault]]:
    """Confirmed cancels, retries and reschedules are on record. Only jobs with all their SQL events are judged."""
    for asked, answer in calls.ok("cancel"):
        kind = {"CANCELLED": "cancelled", "PROCESSING": "cancel_requested"}.get(answer.answer or "")
        for job in _whole(asked, lives):
            if kind and not any(event.kind == kind for event in lives[job]):
                yield job, ("I9", f"was to be cancelled, with the answer {answer.answer}, and no event records it")
    for asked, _ in calls.ok("retry"):
        for job in _whole(asked, lives):
            if not any(event.kind == "retried" for event in lives[job]):
                yield job, ("I12", "was confirmed as retried by hand, and no event records it")
    for asked, _ in calls.ok("reschedule"):
        for job in _whole(asked, lives):
            yield from ((job, fault) for fault in _due(asked, lives[job], "changed"))


def judge_keys(calls: Calls, known: Set[str], lives: Lives) -> Iterator[tuple[str, Fault]]:
    """A key makes one job, gives the same answer to the same request, and refuses only another request.

    A key that callers used for longer than it is kept is not judged.
    """
    by_key: defaultdict[str, list[ClientEvent]] = defaultdict(list)
    for asked in calls.asked.values():
        if asked.key is not None and asked.op == "add":
            by_key[asked.key].append(asked)
    answers = {answer.call: answer for answer in calls.answers}
    for key, invocations in by_key.items():
        if not _expired(invocations):
            yield from _judge_key(key, invocations, answers, known, lives)


def judge_starts(calls: Calls, handlers: Mapping[str, Sequence[HandlerEvent]], lives: Lives) -> Iterator[tuple[str, Fault]]:
    """A job does not start after its cancel was confirmed. Judges only jobs without SQL events."""
    retried = {job for asked in calls.asked.values() if asked.op == "retry" for job in asked.jobs}
    for asked, answer in calls.ok("cancel"):
        for job in asked.jobs:
            if answer.answer != "CANCELLED" or job in lives or job in retried:
                continue
            if any(event.kind == "start" and event.at > answer.at for event in handlers.get(job, ())):
                yield job, ("I9", "was started after its cancel had been confirmed")


def _judge_key(
    key: str,
    invocations: Sequence[ClientEvent],
    answers: Mapping[str, ClientEvent],
    known: Set[str],
    lives: Lives,
) -> Iterator[tuple[str, Fault]]:
    made = sorted({job for invoked in invocations for job in invoked.jobs if job in known or job in lives})
    if len(made) > 1:
        yield made[1], ("I10", f"is another job for the key {key!r}, which made {made[0]}")
        return
    given = [(invoked, answers[invoked.call]) for invoked in invocations if invoked.call in answers]
    confirmed = [(invoked.request, job) for invoked, answer in given if answer.kind == "ok" for job in answer.jobs]
    for request, job in confirmed:
        if (request, job) != confirmed[0]:
            which = "the same request" if request == confirmed[0][0] else "another request"
            yield job, ("I10", f"was confirmed to {which} with the key {key!r}, which had meant {confirmed[0][1]}")
            return
    for invoked, answer in given:
        if answer.kind == "fail" and answer.answer in REUSED and all(w.request == invoked.request for w in invocations):
            asked_for = next(iter(invoked.jobs), "")  # a caller over HTTP may not know an id
            yield asked_for, ("I10", f"was refused although the key {key!r} never meant another request")
            return


def _due(asked: ClientEvent, life: Sequence[SqlEvent], kind: str) -> Iterator[Fault]:
    """Yield a fault if no event that this call may have caused gives the requested time or a later one."""
    dues = [event.due_at for event in life if event.kind == kind]
    if asked.due_at is not None and (dues or kind == "changed") and max(dues, default=0) < asked.due_at:
        early = f"by {asked.due_at - max(dues)} ms" if dues else "and no event records the request"
        yield "I6", f"is due earlier than the caller asked, {early}"


def _whole(asked: ClientEvent, lives: Lives) -> list[str]:
    return [job for job in asked.jobs if job in lives and lives[job][0].kind == "added"]


def _expired(invocations: Sequence[ClientEvent]) -> bool:
    kept = [invoked.kept for invoked in invocations if invoked.kept is not None]
    times = [invoked.at for invoked in invocations]
    return bool(kept) and max(times) - min(times) >= min(kept)
