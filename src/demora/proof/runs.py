"""What handlers saw of their runs, held against the claims and settlements in SQL, token by token."""

from collections.abc import Iterator, Sequence

from .findings import Fault
from .history import HandlerEvent, SqlEvent
from .lives import ENDED, is_lapse


def judge(seen: Sequence[HandlerEvent], events: Sequence[SqlEvent]) -> Iterator[Fault]:
    """The faults that the handler events of one job show. Needs its SQL events from the first on."""
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
            yield "I5", f"told its handler of attempt {start.attempt} when it was {claim.token - claim.credits}"
        started.add(start.token)


def _unclaimed(start: HandlerEvent, events: Sequence[SqlEvent]) -> Fault:
    if any(event.kind == "cancelled" and event.token < start.token for event in events):
        return "I9", f"was started under token {start.token} after its cancel had been answered"
    return "I3", f"was started under token {start.token}, which no claim gave"


def _settled(event: SqlEvent, end: HandlerEvent | None) -> Iterator[Fault]:
    """A success is on record only if the handler under this very token returned; an end by error only if it was the last
    attempt or beyond help. A run that was given up may go on; what it comes to later is of no account."""
    if event.status == "COMPLETED" and (end is None or end.outcome != "ok"):
        came_to = "had not ended" if end is None else f"had ended with {end.outcome}"
        yield "I3", f"was COMPLETED under token {event.token}, whose run {came_to}"
    if end is None or end.at > event.at or event.wished:
        return
    spent = event.token - event.credits > event.max_retries
    if event.status == "FAILED" and end.outcome == "error" and not spent:
        yield "I12", f"was buried with attempts left after an error in attempt {event.token - event.credits}"
    if end.outcome == "permanent" and event.status not in ENDED:
        yield "I12", f"became {event.status} although its handler had said that trying again is useless"
