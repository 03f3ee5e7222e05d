"""Judges a world by its histories, and counts what the table shows."""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from demora.proof import Bounds, ClientEvent, HandlerEvent, HistoryEvent, Violation, check, read, write
from demora.proof.paces import RELEASED
from demora.store.audit import Evidence
from tests.chaos.producer import NOTHING

if TYPE_CHECKING:
    from tests.chaos.world import World

DRAIN = 60_000  # milliseconds
RELEASES = "let go by a pace"
SLOTS = 0.95  # the share that a pace uses while jobs are held
LOCKED = "stayed locked"  # what demora says if SQLite's lock was not to be had


class Result(msgspec.Struct):
    """What became of one world, or of several."""

    fired: Counter[str] = msgspec.field(default_factory=Counter)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    recoveries: list[int] = []
    violations: list[str] = []

    def add(self, other: "Result") -> None:
        self.fired.update(other.fired)
        self.counts.update(other.counts)
        self.recoveries = self.recoveries + other.recoveries
        self.violations = self.violations + other.violations


def judge(world: "World", evidence: Evidence) -> Result:
    """Hold the world's histories to the promises. Where one is broken, the history stays in its folder."""
    history: list[HistoryEvent] = [*read(world.clients, world.notes), *world.events]
    output = world.all_said()
    found = check(history, evidence, bounds=Bounds(drain=DRAIN, slots=SLOTS), canaries=[world.canary], output=[output])
    counts = Counter(_kind_of(violation) for violation in found.violations)
    counts.update(_told(history, evidence))
    counts.update(world.besides)
    said = [violation.explain() for violation in found.violations] + world.troubles + list(_more(history, evidence, output))
    if said:
        write(world.folder / "history.jsonl", [*history, *(evidence.events or ())])
        said = [f"[{world.name}, {world.folder}] {one}" for one in said]
    counts["other"] += len(said) - len(found.violations)
    recoveries = world.watch.recoveries if world.disk is None else []  # a full disk keeps everybody from recovering
    return Result(+world.fired, counts, recoveries, said)


def _kind_of(violation: Violation) -> str:
    if violation.rule == "I1":
        return "stuck" if "is still" in violation.says else "lost"
    return {"I2": "doubled", "I3": "stale accepted", "I6": "early", "I10": "doubled", "I16": "stuck"}.get(
        violation.rule, "other"
    )


def _told(history: list[HistoryEvent], evidence: Evidence) -> dict[str, int]:
    """What there was to judge."""
    answers = [event for event in history if isinstance(event, ClientEvent) and event.kind != "invoke"]
    ends = Counter(event.job for event in history if isinstance(event, HandlerEvent) and event.outcome == "ok")
    events = evidence.events or []
    return {
        "acknowledged": len(answered(history)),
        "calls without an answer": sum(event.kind == "unknown" for event in answers) + _unanswered(history),
        "runs": sum(isinstance(event, HandlerEvent) and event.kind == "start" for event in history),
        RELEASES: sum(event.kind == "changed" and event.lane == RELEASED for event in events),
        "lapses": sum(event.kind == "accepted" and event.wrote == "lapse" for event in events),
        "stale refused": sum(event.kind == "stale" and event.wrote != "lapse" for event in events),
        "handlers that finished a job twice": sum(number > 1 for number in ends.values()),
    }


def answered(history: list[HistoryEvent]) -> set[str]:
    """The jobs that some caller was told to have."""
    adds = (event for event in history if isinstance(event, ClientEvent) and (event.kind, event.op) == ("ok", "add"))
    return {job for event in adds for job in event.jobs}


def _unanswered(history: list[HistoryEvent]) -> int:
    calls = [event for event in history if isinstance(event, ClientEvent)]
    return len({event.call for event in calls}) - sum(event.kind != "invoke" for event in calls)


def _more(history: list[HistoryEvent], evidence: Evidence, output: str) -> list[str]:
    """What the checker has no rule for."""
    said = []
    locked = [line for line in output.splitlines() if LOCKED in line]
    if locked or any(isinstance(event, ClientEvent) and event.answer == "StoreBusy" for event in history):
        said.append("\n".join(["a lock on the database surfaced, which should only ever be waited for", *locked[:8]]))
    there = {job.id for job in evidence.jobs}
    said += [f"job {job} is there, though demora said that nothing was written" for job in _denied(history) if job in there]
    twice = [job for job, times in _completions(evidence).items() if times > 1]
    said += [f"I2 one end: job {job} was recorded as COMPLETED more than once" for job in twice]
    strange = _nobodys(history, evidence)
    if strange > 0:
        said.append(f"I10 idempotency: there are {strange} more jobs than were asked for")
    return said


def _denied(history: list[HistoryEvent]) -> list[str]:
    """The jobs that some caller was told not to have: each has an id of its own, which was sent once."""
    adds = (event for event in history if isinstance(event, ClientEvent) and (event.kind, event.op) == ("fail", "add"))
    return [job for event in adds if (event.answer or "").endswith(NOTHING) for job in event.jobs]


def _completions(evidence: Evidence) -> Counter[tuple[str, int]]:
    done = (event for event in evidence.events or [] if event.kind == "settled" and event.status == "COMPLETED")
    return Counter((event.job, event.generation) for event in done)


def _nobodys(history: list[HistoryEvent], evidence: Evidence) -> int:
    """How many jobs there are beyond those answered, and those that a call without an answer may have made."""
    adds = [event for event in history if isinstance(event, ClientEvent) and event.op == "add"]
    done = {event.key or event.call for event in adds if event.kind == "ok"}
    may_be = {event.key or event.call: max(len(event.jobs), 1) for event in adds if event.kind == "invoke"}
    allowed = sum(number for what, number in may_be.items() if what not in done)
    return len({job.id for job in evidence.jobs} - answered(history)) - allowed
