"""The model of the store against a line without nets: after each step the line agrees with the rows, and hands out the jobs.

Nothing ticks, no claim asks SQL alone, and no job is handed out twice. On PostgreSQL two processes take turns.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from demora.engines.sqlite import SqliteStore
from demora.line import LinedStore
from demora.system.clock import Clock
from tests.conformance.test_model import StoreMachine
from tests.line import bare
from tests.setups import Setup, postgres_store

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

    @invariant()
    def the_line_agrees_with_the_rows(self) -> None:
        if hasattr(self, "store"):
            compared = self.run(self.store.reconcile())
            assert (compared.away, compared.missing, compared.strays, compared.misplaced) == (None, (), (), ())

    def teardown(self) -> None:
        if self.other is not None:
            self.run(self.other.close())
        super().teardown()


def by_the_line_alone(inner: Any) -> LinedStore:
    """A bare store whose claims all go by the line; one for no job only asks for lapsed leases."""
    ask = inner.claim

    async def claim(worker_id: str, limit: int, **more: Any) -> Any:
        assert limit == 0, "the line was passed over"
        return await ask(worker_id, limit, **more)

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


@pytest.mark.hypothesis
@pytest.mark.parametrize(("machine", "examples"), [(on_sqlite, 15), (on_postgres, 6)], ids=["sqlite", "postgres"])
def test_the_line_agrees_with_the_rows_after_each_step(
    machine: Callable[[], type[BareMachine]], examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.no_nets(monkeypatch)
    how = settings(max_examples=4 * examples if EXPLORES else examples, stateful_step_count=40, deadline=None)
    phases = [Phase.generate, Phase.shrink] if EXPLORES else [Phase.generate]
    run_state_machine_as_test(machine(), settings=settings(how, phases=phases, suppress_health_check=list(HealthCheck)))
