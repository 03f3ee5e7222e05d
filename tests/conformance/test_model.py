"""The store against a small model: any sequence of verbs leads both to the same jobs, in the same order."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from demora.core.job import IdempotencyKey, Priority, Unique
from demora.core.retention import Retention
from demora.core.spans import to_ms
from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, Lapsed, Outcome, Raised, Snoozed, Succeeded
from demora.line import LinedStore
from demora.store.jobs import Added, Change, ClaimedJob, Query, QueueChange
from tests.builders import claim, ms, new_job, settle
from tests.clock import TestClock
from tests.conformance.model import Model
from tests.setups import MODEL_SETUPS, Setup

QUEUES = ["b", "a"]
USUAL, RARE = "demo.echo", "rare"  # types of jobs
MOST_JOBS = 8
WAITS = st.sampled_from([0, 0, 0, 1, 2, 30_000])
RANKS = st.sampled_from([Priority.NORMAL, Priority.NORMAL, Priority.LOW, Priority.CRITICAL])
HOW = st.sampled_from(["succeed", "fail", "fail", "break", "snooze", "hand_back", "hand_back", "give_up"])
OUTCOMES: dict[str, tuple[Outcome, Callable[[Model, str], Status]]] = {
    "succeed": (Succeeded(b"1"), Model.succeed),
    "fail": (Raised("no"), Model.fail),
    "break": (Raised("no", permanent=True), partial(Model.fail, permanent=True)),
    "snooze": (Snoozed(ms(2)), partial(Model.snooze, delay=2)),
    "hand_back": (HandedBack(), Model.hand_back),
    "give_up": (Cancelled("no need"), Model.give_up),
}


PLACES = itertools.count()


class StoreMachine(RuleBasedStateMachine):
    """Does the same to both, and compares answers after each step and all jobs after it."""

    setup: Setup
    ids = Bundle("ids")
    runs = Bundle("runs")

    @initialize(target=ids, first=st.lists(st.tuples(st.sampled_from(QUEUES), RANKS, WAITS), min_size=2, max_size=5))
    def open(self, first: list[tuple[str, Priority, int]]) -> Any:
        self.loop = asyncio.new_event_loop()
        self.clock = TestClock()
        self.store = self.setup.make(Path(f"model-{next(PLACES)}"), self.clock)
        self.model = Model(self.clock.wall(), self.clock.boot())
        self.latest: list[ClaimedJob] = []
        self.seen: list[ClaimedJob] = []
        self.parked = self.parked_may_wait = False
        self.paced = set[str]()  # queues whose pace may hold jobs, and moves the due times of those that it releases
        self.run(self.store.open())
        return multiple(*(self.add_one(*job, max_retries=1).id for job in first))

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    def run(self, verb: Any) -> Any:
        return self.loop.run_until_complete(verb)

    @rule(
        target=ids,
        queue=st.sampled_from(QUEUES),
        rank=RANKS,
        delay=WAITS,
        max_retries=st.integers(0, 2),
        copies=st.integers(1, 3),
        type=st.sampled_from([USUAL, USUAL, RARE]),
    )
    @precondition(lambda self: len(self.model.jobs) < MOST_JOBS)
    def add(self, queue: str, rank: Priority, delay: int, max_retries: int, copies: int, type: str) -> Any:
        delays = [delay and delay + n for n in range(copies)]
        return multiple(*(self.add_one(queue, rank, delay, max_retries, type=type).id for delay in delays))

    @rule(target=ids, key=st.sampled_from("kl"), request=st.integers(0, 1), kept=st.sampled_from([1, 60_000]))
    def add_with_key(self, key: str, request: int, kept: int) -> Any:
        added = self.add_one("a", Priority.NORMAL, 0, 1, key=(key, request, kept))
        return multiple() if added.replayed or added.conflict else added.id

    @rule(
        target=ids,
        unique=st.sampled_from("uv"),
        replace=st.booleans(),
        queue=st.sampled_from(QUEUES),
        delay=WAITS,
        lives=st.none() | st.sampled_from([1, 3, 60_000]),
    )
    @precondition(lambda self: len(self.model.jobs) < MOST_JOBS)
    def add_unique(self, unique: str, replace: bool, queue: str, delay: int, lives: int | None) -> Any:
        """One that may also expire, so long after it is due."""
        wait = None if lives is None else delay + lives
        common: dict[str, Any] = {"queue": queue, "max_retries": 1}
        expiry = None if wait is None else ms(wait)
        asked = new_job(**common, unique=Unique(unique, replace), delay=ms(delay), retry_delay=ms(1), expires_in=expiry)
        expires = None if wait is None else self.model.wall + wait
        job = {**common, "expires": expires, "rank": int(Priority.NORMAL), "retry_delay": 1}
        expected = self.model.add_unique(asked.id, unique, replace=replace, delay=delay, **job)
        [added] = self.run(self.store.add([asked]))
        assert (added.id, added.kept, added.replaced) == expected
        return multiple() if added.kept or added.replaced else added.id

    @rule()
    def housekeep(self) -> None:
        assert self.run(self.store.housekeep(Retention(), limit=100)).expired == self.model.housekeep()

    def add_one(
        self,
        queue: str,
        rank: Priority,
        delay: int,
        max_retries: int,
        *,
        key: tuple[str, int, int] | None = None,
        type: str = USUAL,
    ) -> Added:
        common: dict[str, Any] = {"queue": queue, "max_retries": max_retries, "type": type}
        kept = None if key is None else IdempotencyKey(key[0], bytes([key[1]]), kept=ms(key[2]))
        asked = new_job(**common, priority=rank, delay=ms(delay), retry_delay=ms(1), key=kept)
        expected = self.model.add(asked.id, key=key, delay=delay, rank=int(rank), retry_delay=1, **common)
        [added] = self.run(self.store.add([asked]))
        assert (added.id, added.replayed, added.conflict) == expected
        return added

    @rule(
        target=runs,
        limit=st.integers(1, 4),
        lease=st.sampled_from([2, 60_000]),
        queues=st.sampled_from([None, None, {"a"}, set(QUEUES)]),
        types=st.sampled_from([None, None, None, None, frozenset({USUAL}), frozenset({RARE})]),
        hows=st.lists(HOW, max_size=3),
    )
    @precondition(lambda self: self.model.waiting())
    def work(self, limit: int, lease: int, queues: set[str] | None, types: frozenset[str] | None, hows: list[str]) -> Any:
        """Claim, and settle the first few at once."""
        asked = None if queues is None else sorted(queues)
        ready, lapsed, beside = self.model.ready_ids(asked, types), self.model.lapsed(), self.beside_the_line(types)
        claim_id = f"c{len(self.model.claims)}" if limit % 2 else None
        claimed = self.run(claim(self.store, limit, lease=ms(lease), queues=asked, types=types, claim_id=claim_id))
        got = [job.lease.id for job in claimed.jobs]
        if beside:
            self.took_some(got, ready, limit, lease)
        else:
            assert got == self.model.claim(limit, lease, asked, types)
            if len(got) < min(limit, len(ready)):  # some had expired, and others may be ready behind them
                assert claimed.next_in == ms(0)
            elif asked is None and types is None and len(got) < limit:
                self.is_awake_in_time(claimed.next_in, self.model.next_in())
        self.model.note_claim(claim_id, got)
        assert {job.lease.id for job in claimed.lapsed} == lapsed
        for run, how in zip(claimed.jobs, hows, strict=False):
            self.settle_run(run, how)
        self.latest += claimed.jobs
        self.seen += claimed.jobs
        return multiple(*claimed.jobs)

    def beside_the_line(self, types: frozenset[str] | None) -> bool:
        """Whether claims by type may have parked jobs, or will: the line does not know them, and they come in an order of
        their own."""
        if not isinstance(self.store, LinedStore):
            return False
        self.parked = types is not None or (self.parked and self.parked_may_wait)
        self.parked_may_wait = True
        return self.parked

    def took_some(self, got: list[str], ready: list[str], limit: int, lease: int) -> None:
        """Some of the ready jobs were leased, and no others; none only if all of them had expired."""
        expired = {id for id in ready if self.model.expired(self.model.jobs[id])}
        assert len(got) <= limit
        assert set(got) <= set(ready) - expired
        assert got or not set(ready) - expired or expired or self.paced
        found = {job.id: job.status for job in self.run(self.store.find(Query(limit=200))).jobs}
        self.model.take(got, lease)
        self.model.expire(id for id in expired if found[id] is Status.CANCELLED)

    def is_awake_in_time(self, told: timedelta | None, wait: int | None) -> None:
        """To the moment; with a line perhaps earlier, for an entry whose job has moved on."""
        if not isinstance(self.store, LinedStore):
            assert told == (None if wait is None else ms(wait))
        elif wait is not None:
            assert told is not None
            assert told <= ms(wait)

    @rule()
    @precondition(lambda self: self.model.claims)
    def repeat_claims(self) -> None:
        """A claim whose answer was lost is answered again with what its worker still holds."""
        for claim_id in self.model.claims:
            again = self.run(self.store.claimed("ann", claim_id))
            assert [job.lease.id for job in again] == self.model.claimed(claim_id)

    @rule(how=HOW)
    @precondition(lambda self: self.latest)
    def settle_the_latest(self, how: str) -> None:
        self.settle_run(self.latest.pop(), how)

    @rule(run=runs, how=HOW)
    def settle_any(self, run: ClaimedJob, how: str) -> None:
        self.settle_run(run, how)

    @rule(how=HOW)
    @precondition(lambda self: self.stale())
    def settle_a_stale_run(self, how: str) -> None:
        self.settle_run(self.stale()[-1], how)

    def stale(self) -> list[ClaimedJob]:
        """Runs of jobs that somebody else runs by now."""
        running = {id: job.token for id, job in self.model.jobs.items() if job.status is Status.PROCESSING}
        return [run for run in self.seen if run.lease.token < running.get(run.lease.id, 0)]

    def settle_run(self, run: ClaimedJob, how: str) -> None:
        outcome, verb = OUTCOMES[how]
        held = self.model.holds(run.lease.id, run.lease.token)
        expected = verb(self.model, run.lease.id) if held else None
        assert self.run(settle(self.store, run, outcome)) is expected

    @rule()
    @precondition(lambda self: self.model.lapsed())
    def settle_what_lapsed(self) -> None:
        for job in self.run(claim(self.store, 0)).lapsed:
            expected = self.model.fail(job.lease.id)
            assert self.run(settle(self.store, job, Lapsed(job.worker_id))) is expected

    @rule(wait=st.sampled_from([1, 1, 2, 30_000, 1_000_000]))
    def turn(self, wait: int) -> None:
        self.clock.turn(ms=wait)
        self.model.turn(wait)

    @rule(jump=st.sampled_from([-1, 1, 7_200_000]))
    @precondition(lambda self: self.latest)
    def step_wall(self, jump: int) -> None:
        self.clock.step_wall(jump / 1000)
        self.model.wall += jump
        if not self.setup.boots:
            self.model.boot += jump

    @rule()
    def retry_all(self) -> None:
        for id in list(self.model.jobs):
            self.asked(id, "retry")

    @rule(id=ids, verb=st.sampled_from(["cancel", "cancel", "retry", "remove"]))
    def asked(self, id: str, verb: str) -> None:
        expected = getattr(self.model, verb)(id) if id in self.model.jobs else False
        [answer] = self.run(getattr(self.store, verb)([id]))
        assert answer.did is expected

    @rule(id=ids, within=st.sampled_from([1, 30_000]), cancels=st.booleans())
    def undo(self, id: str, within: int, cancels: bool) -> None:
        """Undo a cancel: that of just now, or one of earlier."""
        if cancels:
            self.asked(id, "cancel")
        expected = self.model.restore(id, within) if id in self.model.jobs else False
        assert self.run(self.store.restore(id, within=ms(within))).did is expected

    @rule(id=ids, rank=st.none() | RANKS, delay=st.none() | WAITS)
    def change(self, id: str, rank: Priority | None, delay: int | None) -> None:
        expected = self.model.change(id, rank, delay) if id in self.model.jobs else False
        at = None if delay is None else self.clock.now() + ms(delay)
        assert self.run(self.store.change(id, Change(priority=rank, at=at))).did is expected

    @rule(queue=st.sampled_from(QUEUES), paused=st.sampled_from([False, False, True]))
    @precondition(lambda self: self.model.paused or self.latest)
    def pause(self, queue: str, paused: bool) -> None:
        (self.model.paused.add if paused else self.model.paused.discard)(queue)
        self.run(self.store.set_queue(queue, QueueChange(paused=paused)))

    @invariant()
    def both_know_the_same_jobs(self) -> None:
        if hasattr(self, "store"):
            found = self.run(self.store.find(Query(limit=200))).jobs
            for job in found:
                if job.queue in self.paced and job.id in self.model.jobs:
                    self.model.jobs[job.id].due = to_ms(job.due_at)
            assert {job.id: _seen(job) for job in found} == {id: _seen_in_model(job) for id, job in self.model.jobs.items()}

    @invariant()
    def nothing_is_parked_while_nothing_waits(self) -> None:
        if hasattr(self, "store"):
            self.parked_may_wait = self.parked_may_wait and self.model.waiting()

    @invariant()
    def counts_equal_the_jobs(self) -> None:
        if hasattr(self, "store"):
            for queue in self.run(self.store.queues()):
                mine = [job for job in self.model.jobs.values() if job.queue == queue.name]
                waiting = [job.due > self.model.wall for job in mine if job.status.waiting]
                assert queue.ready + queue.delayed == len(waiting)
                assert queue.name in self.paced or queue.delayed == waiting.count(True)
                states = [job.status for job in mine]
                assert (queue.processing, queue.dead) == (states.count(Status.PROCESSING), states.count(Status.FAILED))


def _seen(job: Any) -> tuple[Any, ...]:
    asked = job.cancel_requested_at is not None and job.status is Status.PROCESSING
    return (job.status, job.token, job.attempt, job.retry_count, to_ms(job.due_at), job.priority, job.queue, asked)


def _seen_in_model(job: Any) -> tuple[Any, ...]:
    asked = job.cancel_requested and job.status is Status.PROCESSING
    return (job.status, job.token, job.attempt, job.retries, job.due, job.rank, job.queue, asked)


def machine(name: str, *, examples: int, kind: type[StoreMachine] = StoreMachine) -> Any:
    """The machine on one set-up, as a test case; None if it is not among those asked for."""
    setup = next((setup for setup in MODEL_SETUPS if setup.name == name), None)
    if setup is None:
        return None
    case = type(f"{name}-machine", (kind,), {"setup": setup}).TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    return case


TestOnSqlite = machine("sqlite-memory", examples=100)
TestOnPostgres = machine("postgres", examples=20)
TestOnLinedSqlite = machine("lined-sqlite-memory", examples=20)
TestOnLinedPostgres = machine("lined-postgres", examples=10)
