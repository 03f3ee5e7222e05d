"""The "sometimes" list: rare situations that a campaign must reach, or it proves nothing about them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from demora.proof import SqlEvent

Life = Sequence[SqlEvent]
HOOKS = "demora.webhooks"


def _after(first: Callable[[SqlEvent], bool], then: Callable[[SqlEvent], bool]) -> Callable[[Life], bool]:
    """Whether some event of the second kind follows directly on one of the first."""
    return lambda life: any(first(a) and then(b) for a, b in pairwise(life))


def _some(fact: Callable[[SqlEvent], bool]) -> Callable[[Life], bool]:
    return lambda life: any(fact(event) for event in life)


def _kind(kind: str) -> Callable[[SqlEvent], bool]:
    return lambda event: event.kind == kind


def _settled(status: str, *, error: str | None = None) -> Callable[[SqlEvent], bool]:
    return lambda e: e.kind == "settled" and e.status == status and (error is None or error in (e.error or ""))


def _count(fact: Callable[[SqlEvent], bool], least: int) -> Callable[[Life], bool]:
    return lambda life: sum(fact(event) for event in life) >= least


def _stale(wrote: str) -> Callable[[SqlEvent], bool]:
    return lambda event: event.kind == "stale" and event.wrote == wrote


def _expired(event: SqlEvent) -> bool:
    return event.expires_at is not None and event.at >= event.expires_at


SOMETIMES: dict[str, Callable[[Life], bool]] = {
    "a job completes at its first attempt": _some(lambda e: _settled("COMPLETED")(e) and e.token == 1),
    "a job completes after a retry": lambda life: _some(_settled("COMPLETED"))(life) and _some(_settled("RETRYING"))(life),
    "a job completes after its worker was lost": lambda life: (
        _some(_settled("RETRYING", error="WorkerLost"))(life) and _some(_settled("COMPLETED"))(life)
    ),
    "a job is lost by three workers": _count(lambda e: "WorkerLost" in (e.error or "") and e.kind == "settled", 3),
    "a job fails because its workers died": _some(_settled("FAILED", error="WorkerLost")),
    "a job fails with its attempts spent": _some(_settled("FAILED", error="ValueError")),
    "a job fails for good at once": _some(_settled("FAILED", error="no hope")),
    "a job fails because nobody knows its type": _some(lambda e: e.kind == "cancelled" and e.status == "FAILED"),
    "a job times out": _some(lambda e: "TimedOut" in (e.error or "")),
    "a job is handed back": _some(lambda e: e.kind == "settled" and e.status == "QUEUED" and e.credits > 0),
    "a retrying job is handed back": _after(lambda e: e.kind == "claimed" and e.retries > 0, _settled("RETRYING")),
    "a job is cancelled while it waits": _some(_kind("cancelled")),
    "a job is cancelled while it waits for a retry": _some(lambda e: e.kind == "cancelled" and e.old_status == "RETRYING"),
    "a running job is asked to end": _some(_kind("cancel_requested")),
    "a running job obeys a cancel": _some(lambda e: e.kind == "settled" and e.status == "CANCELLED" and e.cancel_requested),
    "a running job completes although a cancel was asked for": _some(
        lambda e: e.kind == "settled" and e.status == "COMPLETED" and e.cancel_requested
    ),
    "a job whose worker died is cancelled by an earlier asked": _some(
        lambda e: e.kind == "settled" and e.status == "CANCELLED" and "WorkerLost" in (e.error or "")
    ),
    "a delayed job is let go by a pace": _some(lambda e: e.kind == "changed" and e.lane == 3),
    "a job that was let go runs again as a retry": lambda life: (
        _some(lambda e: e.kind == "claimed" and e.lane == 3)(life) and _count(_kind("claimed"), 2)(life)
    ),
    "a job is retried by hand": _some(_kind("retried")),
    "a cancelled job is retried by hand": _some(lambda e: e.kind == "retried" and e.old_status == "CANCELLED"),
    "a job reaches its third generation": _some(lambda e: e.generation >= 3),
    "a waiting job is moved": _some(_kind("changed")),
    "a retrying job is moved": _some(lambda e: e.kind == "changed" and e.status == "RETRYING"),
    "an ended job is removed": _some(_kind("removed")),
    "a lease is renewed": _some(_kind("renewed")),
    "a lease is renewed ten times": _count(_kind("renewed"), 10),
    "a settlement comes too late": _some(_stale("settle")),
    "a renewal comes too late": _some(_stale("renew")),
    "two workers settle the same lapse": _some(_stale("lapse")),
    "a lapse is settled within its second": _after(_kind("claimed"), _settled("RETRYING", error="WorkerLost")),
    "a job is claimed five times": _some(lambda e: e.token >= 5),
    "a job expires before anybody took it": _some(lambda e: e.kind == "cancelled" and _expired(e) and e.token == 0),
    "a job expires after it was handed back": _some(lambda e: e.kind == "cancelled" and _expired(e) and e.token > 0),
    "a job is tried again after its expiry": _some(lambda e: e.kind == "claimed" and _expired(e)),
    "an expired job is retried by hand": _after(lambda e: e.kind == "cancelled" and _expired(e), _kind("retried")),
    "a unique job is replaced": _some(lambda e: e.kind == "changed" and e.unique is not None),
    "a unique job comes back to waiting": lambda life: _some(lambda e: e.unique is not None and e.token > 0)(life),
    "a job is removed by nobody's asked": _some(lambda e: e.kind == "removed" and e.old_status == "COMPLETED"),
    "a webhook is delivered at its first try": _some(
        lambda e: e.queue == HOOKS and _settled("COMPLETED")(e) and e.token == 1
    ),
    "a webhook is delivered after a failed try": lambda life: (
        _some(lambda e: e.queue == HOOKS and e.retries > 0)(life) and _some(_settled("COMPLETED"))(life)
    ),
    "a webhook is given up": _some(lambda e: e.queue == HOOKS and _settled("FAILED")(e)),
    "a sender dies in mid-delivery": _some(lambda e: e.queue == HOOKS and "WorkerLost" in (e.error or "")),
    "a job fails because its processes died": _some(_settled("FAILED", error="ProcessDied")),
    "a job completes after its process died": lambda life: (
        _some(_settled("RETRYING", error="ProcessDied"))(life) and _some(_settled("COMPLETED"))(life)
    ),
    "a process ends with an exit code": _some(
        _settled("RETRYING", error="ProcessDied: the process of this run ended with exit")
    ),
    "a process ends with a signal": _some(
        _settled("RETRYING", error="ProcessDied: the process of this run ended with signal")
    ),
    "a process closes its pipe": _some(_settled("RETRYING", error="closed its pipe")),
    "a process does not start": _some(_settled("RETRYING", error="did not start within")),
    "a job is snoozed": _some(lambda e: e.kind == "settled" and e.status in ("QUEUED", "RETRYING") and e.lane == 2),
}


def reached(events: Iterable[SqlEvent]) -> frozenset[str]:
    """The situations that some job came into."""
    lives: dict[str, list[SqlEvent]] = defaultdict(list)
    for event in events:
        lives[event.job].append(event)
    return frozenset(name for name, fact in SOMETIMES.items() if any(map(fact, lives.values())))
