"""Compares the runs that handlers saw with the claims and settlements in SQL, token by token."""

from collections.abc import Iterator, Sequence

from .findings import Fault
from .history import HandlerEvent, SqlEvent
from .lives import ENDED, is_lapse


def judge(seen: Sequence[HandlerEvent], events: Sequence[SqlEvent]) -> Iterator[Fault]:
    """Yield the faults that the handler events of one job show. Needs all of its SQL events."""
    claims = {event.token: event for event in events if event.kind == "claimed"}
    yield from _starts([event for event in seen if event.kind == "start"], claims, events)
    ends = {event.token: event for event in seen if event.kind == "end"}
    for event in events:
        if event.kind == "settled" and not is_lapse(event):
            yield from _settled(event, ends.get(event.token))


def _starts(starts: Sequence[HandlerEvent], claims: dict[int, SqlEvent], events: Sequence[SqlEvent]) -> Iterator[Fault]:
    started = set[int]()
    for start in starts:
        claim = claims.get(start.token)
        if start.token in started:
            yield "I4", f"was run twice under token {start.token}"
        elif claim is None:
            yield _unclaimed(start, events)
        elif start.worker is not None and start.worker != claim.worker:
            yield "I3", f"was run by {start.worker} under token {start.token}, which {claim.worker} had claimed"
        elif start.attempt is not None and start.attempt != claim.token - claim.credits:
            yield "I5", f"gave its handler attempt {start.attempt} when it was attempt {claim.token - claim.credits}"
        started.add(start.token)


def _unclaimed(start: HandlerEvent, events: Sequence[SqlEvent]) -> Fault:
    if any(event.kind == "cancelled" and event.token < start.token for event in events):
        return "I9", f"was started under token {start.token} after its cancel had been confirmed"
    return "I3", f"was started under token {start.token}, which belongs to no claim"


def _settled(event: SqlEvent, end: HandlerEvent | None) -> Iterator[Fault]:
    """A success is recorded only if the handler returned under this token. A failure ends the job only if it is permanent or
    the attempts are spent. A run that the worker abandoned may continue; its later outcome does not count."""
    if event.status == "COMPLETED" and (end is None or end.outcome != "ok"):
        came_to = "had not ended" if end is None else f"had ended with {end.outcome}"
        yield "I3", f"was COMPLETED under token {event.token}, whose run {came_to}"
    if end is None or end.at > event.at or event.cancel_requested:
        return
    spent = event.token - event.credits > event.max_retries
    if event.status == "FAILED" and end.outcome == "error" and not spent:
        yield "I12", f"became a dead letter with attempts left, after an error in attempt {event.token - event.credits}"
    if end.outcome == "permanent" and event.status not in ENDED:
        yield "I12", f"became {event.status} although its handler had raised a permanent error"
