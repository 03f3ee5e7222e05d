"""Leads jobs on an audited store through random lives, and writes down what client and handlers see of them."""

from collections.abc import Callable
from typing import Any

from demora.core.spans import to_ms
from demora.core.verdict import Cancelled, HandedBack, Lapsed, Outcome, Raised, Snoozed
from demora.engines.sqlite import SqliteStore
from demora.proof import ClientEvent, HandlerEvent, HistoryEvent, WorldEvent
from demora.store.jobs import Change, ClaimedJob, Report
from tests.builders import DONE, claim, key, ms, new_job, settle
from tests.clock import TestClock

OUTCOMES: list[tuple[Outcome, str]] = [
    (DONE, "ok"),
    (Raised("ValueError: no"), "error"),
    (Raised("ValueError: never", permanent=True), "permanent"),
    (Snoozed(ms(40)), "snooze"),
    (Cancelled("no need"), "cancel"),
    (HandedBack(), "stopped"),
]
WAITS = [0, 1, 20, 60, 30_000]
LEASES = [10, 50, 60_000]


class Driver:
    """One store, its clock, the runs under way, and the history so far. Every verb takes two drawn numbers."""

    def __init__(self, make: Callable[[TestClock], Any] = lambda clock: SqliteStore(clock=clock, audit=True)) -> None:
        self.clock = TestClock()
        self.store = make(self.clock)
        self.history: list[HistoryEvent] = []
        self.ids: list[str] = []
        self.runs: list[ClaimedJob] = []
        self.calls = 0

    async def add(self, n: int, m: int) -> None:
        named = key(f"k{m}", bytes([n % 2])) if n % 3 == 0 else None
        job = new_job(delay=ms(WAITS[m % 5]), max_retries=n % 3, retry_delay=ms(10), key=named)
        asked = {} if named is None else {"key": named.key, "request": str(n % 2), "kept": 86_400_000}
        call = self._invoke("add", job.id, **asked, due_at=self.clock.wall() + WAITS[m % 5] if named is None else None)
        [added] = await self.store.add([job])
        if added.conflict:
            self._answer("fail", "add", call, job.id, answer="422")
        else:
            self._answer("ok", "add", call, added.id)
            self.ids += [] if added.replayed else [added.id]

    async def claim(self, n: int, m: int) -> None:
        claimed = await claim(self.store, 1 + n % 3, worker=f"w{m}", lease=ms(LEASES[n % 3]))
        for job in claimed.jobs:
            self._handler("start", job, attempt=job.retry_state.attempt, worker=f"w{m}")
        self.runs += claimed.jobs

    async def settle(self, n: int, m: int) -> None:
        if self.runs:
            job = self.runs.pop(n % len(self.runs))
            outcome, name = OUTCOMES[m % len(OUTCOMES)]
            self._handler("end", job, outcome=name)
            await settle(self.store, job, outcome)

    async def renew(self, n: int, m: int) -> None:
        await self.store.renew([Report(job.lease, ms(1)) for job in self.runs[: n + 1]], lease=ms(LEASES[m % 3]))

    async def rescue(self, n: int, m: int) -> None:
        for job in (await claim(self.store, 0)).lapsed:
            await settle(self.store, job, Lapsed(job.worker_id))

    async def overtake(self, n: int, m: int) -> None:
        """Let every short lease lapse, and others take over while the first runs go on."""
        self.clock.turn(ms=50)
        await self.rescue(n, m)
        self.clock.turn(ms=200)
        await self.claim(2, m)

    async def turn(self, n: int, m: int) -> None:
        self.clock.turn(ms=[1, 9, 10, 40, 60_000][m % 5])

    async def step(self, n: int, m: int) -> None:
        self.clock.step_wall((-7200, 7200)[m % 2])

    async def cancel(self, n: int, m: int) -> None:
        await self._request("cancel", n)

    async def retry(self, n: int, m: int) -> None:
        await self._request("retry", n)

    async def remove(self, n: int, m: int) -> None:
        await self._request("remove", n, "delete")

    async def change(self, n: int, m: int) -> None:
        if self.ids:
            id, at = self.ids[n % len(self.ids)], self.clock.now() + ms(WAITS[m % 5])
            call = self._invoke("reschedule", id, due_at=to_ms(at))
            answer = await self.store.change(id, Change(at=at))
            self._answer("ok" if answer.did else "fail", "reschedule", call, id)

    async def drain(self) -> None:
        """Let everything that was begun come to its end."""
        self.clock.turn(8000)
        while not self._is_quiet(await self.store.audit.evidence(integrity=False)):
            await self.rescue(0, 0)
            await self.claim(2, 0)
            while self.runs:
                await self.settle(0, 0)
            self.clock.turn(1)
        self.history.append(WorldEvent("drained", self.clock.wall()))

    def _is_quiet(self, evidence: Any) -> bool:
        """All have ended, or wait for a time that is far off by a clock that was set back."""
        later = evidence.now + 3_600_000
        return all(job.completed_at is not None or (job.lease_until is None and job.due_at > later) for job in evidence.jobs)

    async def _request(self, verb: str, n: int, op: str | None = None) -> None:
        if self.ids:
            id = self.ids[n % len(self.ids)]
            call = self._invoke(op or verb, id)
            [answer] = await getattr(self.store, verb)([id])
            status = None if answer.status is None else answer.status.name
            self._answer("ok" if answer.did else "fail", op or verb, call, id, answer=status)

    def _invoke(self, op: Any, *jobs: str, **asked: Any) -> str:
        self.calls += 1
        self.history.append(ClientEvent("invoke", op, str(self.calls), self.clock.wall(), jobs, **asked))
        return str(self.calls)

    def _answer(self, kind: Any, op: Any, call: str, *jobs: str, **answer: Any) -> None:
        self.history.append(ClientEvent(kind, op, call, self.clock.wall(), jobs, **answer))

    def _handler(self, kind: Any, job: ClaimedJob, **seen: Any) -> None:
        self.history.append(HandlerEvent(kind, job.lease.id, job.lease.token, self.clock.wall(), **seen))


VERBS = ["add", "add", "claim", "claim", "settle", "settle", "settle", "renew", "rescue", "overtake", "turn", "turn"]
VERBS += ["step", "cancel", "retry", "remove", "change"]
