"""The same with schedules: whatever happens between, each fire time comes to what the rules say, and has at most one job."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from demora.core.job import Priority
from demora.core.schedules.firing import decide
from demora.core.schedules.schedule import Missed, Overlap, Schedule, job_of
from demora.core.schedules.schedule_request import ScheduleRequest
from demora.core.spans import from_ms, to_ms
from demora.store.schedules import DueSchedule, Firing, Origin
from tests.builders import ms, new_job
from tests.conformance.test_model import StoreMachine, machine

MOST_JOBS = 30
MISSED_LIMIT = 2
NAMES = st.sampled_from("xy")
EVERY = st.sampled_from([4_000, 30_000])
FIELDS = st.fixed_dictionaries(
    {
        "every": EVERY,
        "overlap": st.sampled_from([one.value for one in Overlap]),
        "missed": st.sampled_from([one.value for one in Missed]),
        "late_limit": st.sampled_from([20_000, 604_800_000]),
    }
)
JOB: dict[str, Any] = {"queue": "a", "max_retries": 1}
OF_MODEL: dict[str, Any] = {**JOB, "rank": int(Priority.NORMAL), "retry_delay": 1}


class ScheduleMachine(StoreMachine):
    """Adds and changes schedules beside the jobs, fires them, and compares what became of their fire times."""

    add_with_key = add_unique = housekeep = pause = change = retry_all = settle_a_stale_run = None  # rules of jobs alone

    @initialize(target=StoreMachine.ids, fields=st.tuples(FIELDS, FIELDS))
    def open(self, fields: tuple[dict[str, Any], ...]) -> Any:
        ids = StoreMachine.open(self, [("a", Priority.NORMAL, 0)])
        for name, given in zip("xy", fields, strict=True):
            self.add_schedule(name, given)
        return ids

    @rule(name=NAMES, fields=FIELDS)
    def add_schedule(self, name: str, fields: dict[str, Any]) -> None:
        expected = self.model.add_schedule(name, **fields)
        every, late_limit = fields["every"], fields["late_limit"]
        policies = {"overlap": Overlap(fields["overlap"]), "missed": Missed(fields["missed"]), "late_limit": ms(late_limit)}
        new = Schedule(
            *(name, "demo.echo", b"{}", self.clock.now()),
            **JOB,
            **policies,
            every=ms(every),
            retry_delay=ms(1),
            missed_limit=MISSED_LIMIT,
        )
        added = self.run(self.store.schedules.add(new, origin=Origin.API, by="ann"))
        assert (added is not None) is expected
        self.compare(name)

    @rule(name=NAMES, every=EVERY)
    def change_schedule(self, name: str, every: int) -> None:
        self.changed(name, ScheduleRequest(every=ms(every)), every=every)

    @rule(name=NAMES, enabled=st.booleans())
    def pause_or_resume(self, name: str, enabled: bool) -> None:
        self.changed(name, ScheduleRequest(enabled=enabled), enabled=enabled)

    def changed(self, name: str, request: ScheduleRequest, **fields: Any) -> None:
        expected = self.model.change_schedule(name, **fields)
        assert (self.run(self.store.schedules.change(name, request, by="ann")) is not None) is expected
        self.compare(name)

    @rule(name=NAMES)
    @precondition(lambda self: len(self.model.schedules) == 2 and len(self.model.jobs) > 10)
    def remove_schedule(self, name: str) -> None:
        del self.model.schedules[name]
        assert self.run(self.store.schedules.remove(name))

    @rule(name=NAMES)
    @precondition(lambda self: len(self.model.jobs) < MOST_JOBS)
    def trigger(self, name: str) -> None:
        job = new_job(**JOB, retry_delay=ms(1))
        expected = self.model.trigger(name, job.id, **OF_MODEL)
        assert (self.run(self.store.schedules.trigger(name, job)) is not None) is expected

    @rule(wait=st.sampled_from([3_999, 4_000, 11_000, 30_000, 100_000]))
    @precondition(lambda self: self.model.schedules)
    def turn_to_a_fire_time(self, wait: int) -> None:
        self.turn(wait)

    @rule()
    @precondition(lambda self: self.model.schedules)
    def set_the_clock_back(self) -> None:
        self.step_wall(-35_000)

    @rule(name=NAMES)
    @precondition(lambda self: self.model.schedules and len(self.model.jobs) < MOST_JOBS)
    def come_to_the_same_fire_times_again(self, name: str) -> None:
        """A change while the clock is set back begins before fire times that have their records."""
        self.step_wall(-35_000)
        self.changed(name, ScheduleRequest(tags=["back"]))
        self.turn(35_000)
        self.fire()
        self.changed(name, ScheduleRequest(tags=["again"]))

    @rule()
    @precondition(lambda self: self.model.due_schedules() and len(self.model.jobs) < MOST_JOBS)
    def fire(self) -> None:
        due = self.run(self.store.schedules.due(limit=10))
        assert {one.schedule.name for one in due.schedules} == self.model.due_schedules()
        firings = [self.firing(one) for one in due.schedules]
        expected = []
        for firing in firings:
            ids = {to_ms(at): job.id for at, job in zip(firing.decision.fired, firing.jobs, strict=True)}
            expected.append(self.model.fire(firing.due.schedule.name, ids, MISSED_LIMIT, **OF_MODEL))
        results = self.run(self.store.schedules.fire(firings))
        assert [(result.applied, result.added) for result in results] == [(True, added) for added in expected]
        for firing in firings:
            self.compare(firing.due.schedule.name)

    def firing(self, due: DueSchedule) -> Firing:
        """What a scheduler makes of a schedule that is due."""
        decision = decide(due.schedule, due.progress, self.clock.now(), due.previous)
        return Firing(due, decision, tuple(job_of(due.schedule, new_job().id, fire_time=at) for at in decision.fired))

    def compare(self, name: str) -> None:
        found, known = self.run(self.store.schedules.get(name)), self.model.schedules.get(name)
        if known is None:
            assert found is None
            return
        at = [known.decided, known.next, known.kept]
        progress = found.progress
        assert [progress.decided_to, progress.next_at, progress.kept_at] == [
            None if one is None else from_ms(one) for one in at
        ]
        records = self.run(self.store.schedules.records(name, limit=10_000))
        assert {to_ms(record.slot_at): record.outcome.value for record in records} == known.records
        assert found.run_count == known.runs


TestOnSqlite = machine("sqlite-memory", examples=40, kind=ScheduleMachine)
TestOnPostgres = machine("postgres", examples=8, kind=ScheduleMachine)
TestOnLinedSqlite = machine("lined-sqlite-memory", examples=10, kind=ScheduleMachine)
TestOnLinedPostgres = machine("lined-postgres", examples=6, kind=ScheduleMachine)
