"""An application with a line: from enqueue to the end, and through the other ports of its store."""

import asyncio
from pathlib import Path

import pytest

from demora import Demora
from demora.core.states import Status
from demora.engines import make_store
from demora.errors import BadSetting
from demora.line.reconcile import Reconcilable
from demora.store.diagnostics import Probed
from demora.store.jobs import QueueChange
from demora.store.transaction import Transactional
from demora.worker import Worker
from tests.builders import add_one, claim_ids, seconds
from tests.servers.valkey import Server
from tests.setups import lined_store, postgres_store, redis_url


async def test_jobs_run_with_a_line_as_without(tmp_path: Path, server: Server) -> None:
    app = Demora(f"sqlite:///{tmp_path}/jobs.db", server.url)
    failed = set[int]()

    @app.job("sum", retry_delay="10ms")
    async def add(a: int, b: int) -> int:
        if a == 3 and a not in failed:
            failed.add(a)
            raise ValueError("once")
        return a + b

    async with app:
        client = await app.open()
        worker = Worker(app, concurrency=4)
        running = asyncio.ensure_future(worker.run())
        jobs = [await client.enqueue("sum", {"a": n, "b": 1}, delay="20ms" if n % 2 else None) for n in range(8)]
        ended = [await client.wait(job.id, "20s") for job in jobs]
        assert [(job.status, job.result) for job in ended] == [(Status.COMPLETED, n + 1) for n in range(8)]
        assert (await client.health()).notes == ()
        assert client.line_used() is True
        server.kill()
        last = await client.enqueue("sum", {"a": 40, "b": 2})
        assert (await client.wait(last.id, "20s")).result == 42
        assert "handed out by the database" in (await client.health()).notes[0]
        assert client.line_used() is False
        worker.stop()
        await running


async def test_the_optional_ports_of_the_store_are_there(tmp_path: Path) -> None:
    store = make_store(f"sqlite:///{tmp_path}/jobs.db", redis_url=redis_url())
    assert isinstance(store, Reconcilable)
    assert isinstance(store.diagnostics, Probed)
    assert not isinstance(store, Transactional)
    assert store.sibling() is not None


async def test_with_postgresql_it_joins_transactions(tmp_path: Path) -> None:
    store = lined_store(postgres_store(tmp_path))
    assert isinstance(store, Transactional)


async def test_an_address_that_is_none_is_refused_by_the_settings() -> None:
    with pytest.raises(BadSetting, match="redis_url"):
        Demora(redis_url="http://host").settings  # noqa: B018


async def test_a_sibling_puts_jobs_into_the_line_too(tmp_path: Path, server: Server) -> None:
    store = make_store(f"sqlite:///{tmp_path}/jobs.db", redis_url=server.url)
    await store.open()
    sibling = store.sibling()
    assert sibling is not None
    await sibling.open()
    await sibling.set_queue("default", QueueChange(head_start=seconds(1)))
    added = await add_one(sibling)
    assert await claim_ids(store) == [added.id]
    await sibling.close()
    await store.close()
