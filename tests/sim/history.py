"""Writes down what callers ask and handlers do in a simulation, and has it judged."""

import itertools
from typing import Any

from demora import Context
from demora.core.job import Job
from demora.core.states import Status
from demora.proof import Bounds, ClientEvent, Findings, HandlerEvent, HistoryEvent, WorldEvent, check
from demora.store.audit import Evidence
from tests.sim.world import World

OUTCOMES = {"Snooze": "snooze", "Cancel": "cancel", "Fail": "permanent", "CancelledError": "cancelled"}
LONGEST_DRAIN = 6 * 3_600_000  # milliseconds of virtual time: a clock set back delays jobs by hours


class Recorder:
    """The history of one simulation. `known` are the ids that some caller was answered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._events: list[HistoryEvent] = []
        self._calls: dict[str, ClientEvent] = {}
        self._numbers = itertools.count(1)
        self.known: list[str] = []
        self.names_workers = True

    def invoked(self, op: Any, ids: list[str], key: str | None = None) -> str:
        call = str(next(self._numbers))
        event = ClientEvent("invoke", op, call, self._now(), jobs=tuple(ids), key=key, request=key)
        self._calls[call] = event
        self._events.append(event)
        return call

    def answered(self, call: str, answer: Any) -> None:
        """The call was carried out; the answer names jobs or a status."""
        asked = self._calls.pop(call)
        jobs = tuple(job.id for job, _ in answer) if isinstance(answer, list) else asked.jobs
        status = answer.name if isinstance(answer, Status) else answer.status.name if isinstance(answer, Job) else None
        self._finish("ok", asked, jobs=jobs, answer=status)
        if asked.op == "add":
            self.known += [id for id in jobs if id not in self.known]

    def failed(self, call: str, why: str) -> None:
        self._finish("fail", self._calls.pop(call), answer=why)

    def unknown(self, call: str) -> None:
        self._finish("unknown", self._calls.pop(call))

    def started(self, ctx: Context) -> None:
        self._run("start", ctx)

    def ended(self, ctx: Context, how: str) -> None:
        self._run("end", ctx, OUTCOMES.get(how, "ok" if how == "returned" else "error"))

    def world(self, kind: str) -> None:
        self._events.append(WorldEvent(kind, self._now(), boot=self._world.clock.boot()))

    def rescued(self, id: str, net: str) -> None:
        """A safety net found a job that it should not have had to find."""
        self._events.append(WorldEvent("rescued", self._now(), net, id, self._world.clock.boot()))

    def judge(self, evidence: Evidence, *, rescue: int | None = None) -> Findings:
        return check(self._events, evidence, bounds=Bounds(drain=LONGEST_DRAIN, rescue=rescue))

    def _finish(self, kind: Any, asked: ClientEvent, **more: Any) -> None:
        rest = {"jobs": asked.jobs, "key": asked.key, "request": asked.request, **more}
        self._events.append(ClientEvent(kind, asked.op, asked.call, self._now(), **rest))

    def _run(self, kind: Any, ctx: Context, outcome: str | None = None) -> None:
        lease = ctx.job.lease
        worker = ctx.worker_id if self.names_workers else None
        event = HandlerEvent(kind, lease.id, lease.token, self._now(), ctx.attempt, worker, outcome)
        self._events.append(event)

    def _now(self) -> int:
        return self._world.clock.wall()
