"""The checker: reads a history and the rows at its end, and reports which promises were kept.

It is pure. It knows the promises and nothing of how demora keeps them, so it judges simulated, real and production runs
alike. It names each promise that it cannot judge from its input.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from ..store.audit import Evidence
from . import clients, lives, paces, rows, runs, schedules, timing
from .findings import RULES, Bounds, Fault, Findings, Found, Violation, in_order
from .history import ClientEvent, HandlerEvent, HistoryEvent, SqlEvent, WorldEvent

E = TypeVar("E", SqlEvent, HandlerEvent)

NEVER_JUDGED = {
    "I14": "no rule of its own: where the line was lost, all others must hold",
}


def check(
    history: Iterable[HistoryEvent],
    evidence: Evidence | None = None,
    *,
    bounds: Bounds = Bounds(),  # noqa: B008
    canaries: Iterable[str] = (),
    output: Iterable[str] = (),
) -> Findings:
    """Judge a history and, if given, the evidence of the store at its end.

    The SQL events are those of the history, or of the evidence if the history has none. `canaries` are seeded secrets that
    must not occur in any text of `output`.
    """
    case = _Case(history, evidence, bounds, tuple(canaries), output)
    found = list(case.faults())
    judged, not_judged = case.coverage()
    return Findings([case.violation(*one) for one in found], judged, not_judged, case.counts())


class _Case:
    """The input of a check, sorted by source and by job."""

    def __init__(
        self,
        history: Iterable[HistoryEvent],
        evidence: Evidence | None,
        bounds: Bounds,
        canaries: tuple[str, ...],
        output: Iterable[str],
    ) -> None:
        self.sql, self.handler, self.client, self.world = _sorted(history)
        if not self.sql and evidence is not None and evidence.events is not None:
            self.sql = evidence.events
        self.audited = bool(self.sql) or (evidence is not None and evidence.events is not None)
        self.sql.sort(key=attrgetter("seq"))
        self.world.sort(key=attrgetter("at"))
        self.lives, self.runs = _by_job(self.sql), _by_job(self.handler)
        self.calls = clients.Calls(self.client)
        self.evidence, self.bounds, self.canaries, self.output = evidence, bounds, canaries, output
        self.drained = next((event.at for event in reversed(self.world) if event.kind == "drained"), None)

    def faults(self) -> Iterator[Found]:
        yield from self._in_lives()
        yield from self._in_calls()
        if self.evidence is not None:
            yield from self._in_rows(self.evidence)
        if self.bounds.drain is not None:
            yield from ((None, fault) for fault in timing.judge_draining(self.world, self.bounds.drain))
        yield from self._leaks()

    def violation(self, job: str | None, fault: Fault) -> Violation:
        return Violation(fault[0], job, fault[1], () if job is None else self._events_of(job))

    def counts(self) -> dict[str, int]:
        counts = Counter(f"sql {event.kind}" for event in self.sql)
        rows = () if self.evidence is None else self.evidence.jobs
        read = {"client": len(self.client), "handler": len(self.handler), "sql": len(self.sql), "world": len(self.world)}
        rescued = sum(1 for _ in timing.rescues(self.world, self.lives, self.bounds.rescue or 0))
        read |= {"rescued": rescued} if rescued else {}
        return {"jobs": len({*self.lives, *(job.id for job in rows)}), **read, **counts}

    def coverage(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return what each rule was judged by, and why the other rules were not judged."""
        judged = {rule: by for rule, by in self._grounds() if by}
        return dict(sorted(judged.items(), key=_number)), {rule: self._why_not(rule) for rule in RULES if rule not in judged}

    def _in_lives(self) -> Iterator[Found]:
        times, bound = timing.FaultTimes(self.world), self.bounds.start
        signed = any(event.kind == "accepted" for event in self.sql)
        for job, life in self.lives.items():
            for fault in lives.judge(life):
                yield job, fault
            for fault in lives.judge_signatures(life) if signed else ():
                yield job, fault
            if bound is not None:
                for fault in timing.judge_starts(life, times, bound):
                    yield job, fault
        yield from lives.judge_unique(self.sql)
        paced = [] if self.evidence is None else self.evidence.paces
        yield from paces.judge(self.sql, paced)
        if self.bounds.rescue is not None:
            yield from timing.judge_rescues(self.world, self.lives, self.bounds.rescue)
        if self.bounds.slots is not None:
            yield from paces.judge_backlogs(self.sql, paced, times, self.bounds.slots)
        for job, seen in self.runs.items():
            life = self.lives.get(job, [])
            if life and life[0].kind == "added":
                for fault in runs.judge(seen, life):
                    yield job, fault

    def _in_calls(self) -> Iterator[Found]:
        known = self._known()
        if known is not None:
            yield from clients.judge_adds(self.calls, known, self.lives)
            yield from clients.judge_keys(self.calls, known, self.lives)
        yield from clients.judge_requests(self.calls, self.lives)
        yield from clients.judge_starts(self.calls, self.runs, self.lives)

    def _in_rows(self, evidence: Evidence) -> Iterator[Found]:
        paused = frozenset(queue.name for queue in evidence.queues if queue.paused)
        now = evidence.now if self.drained is None else min(evidence.now, self.drained)
        for job in evidence.jobs:
            faults = [*rows.judge_row(job), *rows.judge_last(job, self.lives.get(job.id, ()))]
            if self.drained is not None:
                faults += rows.judge_drained(job, now, paused)
            yield from ((job.id, fault) for fault in faults)
        yield from self._vanished(evidence)
        yield from schedules.judge(evidence)
        yield from rows.judge_keys(evidence, self.lives) if self.audited else ()
        yield from rows.judge_webhooks(evidence, self.lives) if self.audited else ()
        yield from ((None, fault) for fault in rows.judge_counts(evidence) if evidence.queues)
        yield from ((id, ("I17", "has attempts on record and no row")) for id in evidence.orphans)
        yield from ((None, ("I17", f"the database found: {said}")) for said in evidence.integrity or ())

    def _vanished(self, evidence: Evidence) -> Iterator[Found]:
        """Yield the jobs with SQL events that have neither a row nor a removal."""
        there = {job.id for job in evidence.jobs}
        for job, life in self.lives.items():
            last = next((event for event in reversed(life) if event.kind not in lives.TRACES), None)
            if job not in there and last is not None and last.kind != "removed":
                yield job, ("I1", f"was {last.status} by its last event and has no row")

    def _leaks(self) -> Iterator[Found]:
        for text in self.output if self.canaries else ():
            for canary in self.canaries:
                if canary in text:
                    yield None, ("I18", f"the output contains a secret: …{text.split(canary)[0][-60:]}<{canary[:4]}…>")

    def _known(self) -> set[str] | None:
        """Return the jobs that exist, or ever existed if there are only events; None if there is neither."""
        if self.evidence is not None:
            return {job.id for job in self.evidence.jobs}
        return set(self.lives) if self.audited else None

    def _events_of(self, job: str) -> tuple[HistoryEvent, ...]:
        keys = {event.key for event in self.client if event.key is not None and job in event.jobs}
        calls = {event.call for event in self.client if job in event.jobs or (event.key is not None and event.key in keys)}
        client = [event for event in self.client if event.call in calls]
        return in_order(self.lives.get(job, []), self.runs.get(job, []), client)

    def _grounds(self) -> Iterator[tuple[str, str]]:
        facts, keyed = self.evidence, any(event.key for event in self.client)
        events = "events" if self.audited else ""
        rows_ = "rows" if facts is not None else ""
        requests = "client" if self.client else ""
        yield (
            "I1",
            _and(requests if rows_ or events else "", events if rows_ else "", "drained" if self._is_drained() else ""),
        )
        for rule in ("I2", "I3", "I4", "I6"):
            yield rule, events and _and(events, "handlers" if self.handler and rule in ("I3", "I4") else "")
        yield "I5", _and(events, rows_)
        yield "I7", events if self.bounds.start is not None else ""
        yield "I8", events if facts is not None and facts.paces else ""
        yield "I9", _and(events, requests if events or self.handler else "")
        yield "I10", _and(requests if keyed and (rows_ or events) else "", "keys" if events and facts and facts.keys else "")
        yield "I11", "rows" if facts is not None and any(job.schedule for job in facts.jobs) else ""
        yield "I12", _and(events, rows_)
        yield "I13", _and(events, rows_) if events and rows_ else ""
        yield "I15", "rows" if facts is not None and facts.queues else ""
        yield "I16", "world" if self.bounds.drain is not None and self._healed() else ""
        yield "I17", _and(rows_, "integrity check" if facts is not None and facts.integrity is not None else "")
        yield "I18", "output" if self.canaries else ""
        yield "I19", events
        yield "I20", events

    def _why_not(self, rule: str) -> str:
        if rule in NEVER_JUDGED:
            return NEVER_JUDGED[rule]
        if rule == "I8":
            return "no queue ever had a pace" if self.audited else "needs an audit"
        if rule == "I11":
            return "needs rows" if self.evidence is None else "no schedule has added a job"
        if rule in ("I7", "I16"):
            return "no bound was given" if self._bound(rule) is None else _WANTING[rule]
        if rule == "I10":
            return "there are no keys to judge" if self.audited or self.client else "needs an audit or a client history"
        return _WANTING.get(rule, "needs an audit")

    def _bound(self, rule: str) -> int | None:
        return self.bounds.start if rule == "I7" else self.bounds.drain

    def _healed(self) -> bool:
        return any(event.kind == "healed" for event in self.world)

    def _is_drained(self) -> bool:
        return self.drained is not None and self.evidence is not None


_WANTING = {
    "I1": "needs an audit or a client history",
    "I5": "needs an audit or rows",
    "I7": "needs an audit",
    "I12": "needs an audit or rows",
    "I13": "needs an audit and rows",
    "I15": "needs rows and the counts that were shown",
    "I16": "nothing was healed",
    "I17": "needs rows",
    "I18": "needs seeded secrets and output",
}


def _sorted(
    history: Iterable[HistoryEvent],
) -> tuple[list[SqlEvent], list[HandlerEvent], list[ClientEvent], list[WorldEvent]]:
    sql: list[SqlEvent] = []
    handler: list[HandlerEvent] = []
    client: list[ClientEvent] = []
    world: list[WorldEvent] = []
    for event in history:
        match event:
            case SqlEvent():
                sql.append(event)
            case HandlerEvent():
                handler.append(event)
            case ClientEvent():
                client.append(event)
            case WorldEvent():
                world.append(event)
    return sql, handler, client, world


def _by_job(events: Sequence[E]) -> Mapping[str, list[E]]:
    found: defaultdict[str, list[E]] = defaultdict(list)
    for event in events:
        found[event.job].append(event)
    return found


def _and(*grounds: str) -> str:
    return ", ".join(filter(None, grounds))


def _number(rule: tuple[str, str]) -> int:
    return int(rule[0][1:])
