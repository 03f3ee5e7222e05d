"""A search that is interrupted ends, and the next one runs."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demora.engines.sqlite import SqliteStore
from demora.errors import SearchTooSlow
from demora.system.clock import SystemClock

ENDLESS = "with recursive made (n) as (select 1 union all select n + 1 from made) select count(*) from made"


async def test_a_search_is_interrupted_while_another_cursor_of_it_is_open(tmp_path: Path) -> None:
    """SQLite interrupts every statement until all of a connection have ended, also the rollback."""

    def endless(tx: Any) -> Iterator[Any]:
        opened = tx.db.execute("select 1 union all select 2")
        list(tx.db.execute(ENDLESS))
        return opened

    store = SqliteStore(tmp_path / "jobs.db", clock=SystemClock())
    await store.open()
    try:
        for _ in range(2):
            with pytest.raises(SearchTooSlow):
                await store._database.search(endless, timedelta(milliseconds=20))
        assert await store._database.search(lambda tx: list(tx.db.execute("select 1")), None) == [(1,)]
    finally:
        await store.close()
