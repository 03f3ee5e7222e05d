"""The model of the store against a line without nets: after each step the line agrees with the rows, and hands out the jobs.

Nothing ticks, no claim asks SQL alone, and no job is handed out twice. On PostgreSQL two processes take turns.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from demora.core.pace import Pace, request_of
from demora.core.retention import Retention
from demora.engines.sqlite import SqliteStore
from demora.line import LinedStore
from demora.store.jobs import ClaimRequest
from demora.system.clock import Clock
from tests.builders import add_ids, ms, seconds
from tests.clock import TestClock
from tests.conformance.test_model import QUEUES, StoreMachine
from tests.line import bare
from tests.setups import Setup, postgres_store

PACE = Pace(gap=ms(3), burst=2, stagger=ms(1), rapid=None)
EXPLORES = settings.get_current_profile_name() == "explore"


class BareMachine(StoreMachine):
    """Does the same to a store and to the model, and compares the line with the rows after each step."""

    store: LinedStore
    other: LinedStore | None = None
    again: Callable[[], LinedStore] | None = None  # another store on the same database

    @rule()
    def rebuild(self) -> None:
        self.run(self.store.rebuild())
        if self.other is not None:
            self.run(bare.reconnect(self.other))  # as its next tick does

    @precondition(lambda self: self.again is not None)
    @rule()
    def switch(self) -> None:
        """Go on in another process."""
        if self.other is None:
            assert self.again is not None
            self.other = self.again()
            self.run(self.other.open())
        self.store, self.other = self.other, self.store

    @precondition(lambda self: self.latest)
    @rule(queue=st.sampled_from(QUEUES), paced=st.booleans())
    def pace(self, queue: str, paced: bool) -> None:
        self.paced.add(queue)
        self.run(self.store.paces.set(queue, request_of(PACE) if paced else None, by="ann"))

    @precondition(lambda self: self.paced)
    @rule()
    def release(self) -> None:
        self.run(self.store.paces.release())

    def beside_the_line(self, types: frozenset[str] | None) -> bool:
        """Also with a pace: SQL releases what it allows, and claims it at once."""
        inner: Any = self.store.inner
        inner.asked = super().beside_the_line(types) or bool(self.paced)
        return bool(inner.asked)

    @invariant()
    def the_line_agrees_with_the_rows(self) -> None:
        if hasattr(self, "store"):
            compared = self.run(self.store.reconcile())
            assert (compared.away, compared.missing, compared.surplus, compared.misplaced) == (None, (), (), ())

    def teardown(self) -> None:
        if self.other is not None:
            self.run(self.other.close())
        super().teardown()


def by_the_line_alone(inner: Any) -> LinedStore:
    """A bare store whose claims all go by the line, unless jobs may be parked, which it does not know, or a pace may
    release some; one for no job only asks for lapsed leases."""
    ask, inner.asked = inner.claim, False

    async def claim(request: ClaimRequest) -> Any:
        assert request.limit == 0 or inner.asked, "the line was passed over"
        return await ask(request)

    inner.claim = claim
    return bare.bare_store(inner)


def on_sqlite() -> type[BareMachine]:
    setup = Setup("bare-sqlite", lambda _, clock: by_the_line_alone(SqliteStore(clock=clock)))
    return type("BareSqlite", (BareMachine,), {"setup": setup})


def on_postgres() -> type[BareMachine]:
    def make(folder: Path, clock: Clock) -> LinedStore:
        Bare.again = staticmethod(lambda: by_the_line_alone(postgres_store(folder, clock)))
        return by_the_line_alone(postgres_store(folder, clock))

    class Bare(BareMachine):
        setup = Setup("bare-postgres", make, boots=False)
        again = None

    return Bare


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize(("machine", "examples"), [(on_sqlite, 15), (on_postgres, 6)], ids=["sqlite", "postgres"])
def test_the_line_agrees_with_the_rows_after_each_step(
    machine: Callable[[], type[BareMachine]], examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.no_nets(monkeypatch)
    how = settings(max_examples=4 * examples if EXPLORES else examples, stateful_step_count=40, deadline=None)
    phases = [Phase.generate, Phase.shrink] if EXPLORES else [Phase.generate]
    run_state_machine_as_test(machine(), settings=settings(how, phases=phases, suppress_health_check=list(HealthCheck)))


@pytest.mark.parametrize("engine", bare.ENGINES)
async def test_a_job_that_housekeeping_expires_leaves_the_line(
    engine: str, tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.no_nets(monkeypatch)
    async with bare.opened(engine, tmp_path, clock, 1) as [store]:
        await add_ids(store, {"expires_in": seconds(1)}, {"delay": seconds(60)})
        clock.turn(2)
        assert (await store.housekeep(Retention(), limit=10)).expired == 1
        compared = await store.reconcile()
        assert (compared.agrees, compared.waiting, compared.surplus) == (True, 1, ())
