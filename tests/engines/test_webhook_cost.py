"""What webhooks cost those who have none: nothing more is asked when a job ends that nobody is to hear of."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from demora.core.verdict import Outcome
from demora.engines.postgres.connection.connections import Session
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection import connections
from demora.store.store import Store
from tests.builders import BROKEN, DONE, add_ids, claim, settlement
from tests.setups import postgres_store

HOOK = {"webhook_url": "https://example.com/"}
WRITES = ("update", "insert", "select", "with", "delete")
OTHERS = (" tallies ", " meta ", "select type, lane, due_at from jobs")  # what statistics and events ask


async def settle_all(store: Store, outcome: Outcome, seen: list[str], *, hooked: bool = False) -> int:
    """How many statements it takes to settle five jobs in one call."""
    await add_ids(store, *[HOOK if hooked else {}] * 5)
    jobs = (await claim(store, queues=["default"])).jobs
    seen.clear()
    await store.settle([settlement(job, outcome) for job in jobs])
    return sum(sql.lstrip().startswith(WRITES) and not any(table in sql for table in OTHERS) for sql in seen)


@pytest.fixture
def seen() -> list[str]:
    return []


async def test_on_sqlite(seen: list[str]) -> None:
    def connect(path: Path | None) -> apsw.Connection:
        db = connections.connect(path)
        db.exec_trace = lambda _, sql, __: seen.append(sql.lower()) or True
        return db

    store = SqliteStore(connect=connect)
    await store.open()
    assert await settle_all(store, DONE, seen) == 1
    assert await settle_all(store, BROKEN, seen) == 10  # the verdict and the attempt of each
    assert await settle_all(store, DONE, seen, hooked=True) > 1
    await store.close()


async def test_on_postgres(seen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Session.rows

    async def rows(session: Session, statement: Any, **parameters: Any) -> Any:
        if statement != "notify":  # the notification that follows
            seen.append(f"select {statement}")
        return await ask(session, statement, **parameters)

    monkeypatch.setattr(Session, "rows", rows)
    store = postgres_store(tmp_path)
    await store.open()
    assert await settle_all(store, DONE, seen) == 1
    assert await settle_all(store, BROKEN, seen) == 1
    assert await settle_all(store, DONE, seen, hooked=True) > 1
    await store.close()
