"""An application's store is open for as long as somebody's block lasts, and closed by the last."""

import asyncio
from pathlib import Path

import pytest

from demora import Demora, Status
from demora.errors import JobNotFound, StoreError


@pytest.fixture
def app() -> Demora:
    """In memory, so that jobs are gone once the store is closed."""
    return Demora("sqlite://")


async def test_a_block_within_another_leaves_the_store_open(app: Demora) -> None:
    async with app:
        async with app:
            job = await app.enqueue("demo.echo")
        assert (await app.get(job.id)).id == job.id
    with pytest.raises(JobNotFound):
        await app.get(job.id)
    await app.close()


async def test_the_last_block_to_end_closes_whichever_began_first(app: Demora) -> None:
    first, second = app, app
    await first.__aenter__()
    await second.__aenter__()
    job = await app.enqueue("demo.echo")
    await first.__aexit__(None, None, None)
    assert (await app.get(job.id)).id == job.id
    await second.__aexit__(None, None, None)
    with pytest.raises(JobNotFound):
        await app.get(job.id)
    await app.close()


async def test_a_handler_may_have_a_block_of_its_own(app: Demora) -> None:
    @app.job("orders")
    async def orders() -> str:
        async with app:
            return (await app.enqueue("demo.echo", {"hi": 1})).id

    async with app, app.worker():
        ids = [await app.result((await orders.enqueue()).id, "60s") for _ in range(3)]
        assert [await app.result(id, "60s") for id in ids] == [{"hi": 1}] * 3


async def test_a_worker_holds_the_store_open_that_a_block_within_it_would_close(app: Demora) -> None:
    async with app.worker():
        async with app:
            job = await app.enqueue("demo.echo", {"hi": 1})
        assert await app.result(job.id, "60s") == {"hi": 1}
    with pytest.raises(JobNotFound):
        await app.get(job.id)
    await app.close()


async def test_a_worker_alone_closes_nothing(app: Demora) -> None:
    job = await app.enqueue("demo.echo")
    async with app.worker():
        await app.result(job.id, "60s")
    assert (await app.get(job.id)).status is Status.COMPLETED
    await app.close()


async def test_an_explicit_close_closes_at_once_and_the_next_call_opens_anew(app: Demora) -> None:
    async with app:
        gone = await app.enqueue("demo.echo")
        await app.close()
        async with app:
            job = await app.enqueue("demo.echo")
        assert (await app.get(job.id)).id == job.id
        with pytest.raises(JobNotFound):
            await app.get(gone.id)


async def test_a_block_that_could_not_begin_holds_nothing(app: Demora, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("no database" * 1000)
    app.configure(database_url=f"sqlite:///{tmp_path / 'taken'}")
    with pytest.raises(StoreError):
        async with app:
            raise AssertionError
    app.configure(database_url="sqlite://")
    async with app:
        job = await app.enqueue("demo.echo")
    with pytest.raises(JobNotFound):
        await app.get(job.id)
    await app.close()


def test_each_event_loop_counts_its_own_blocks(tmp_path: Path) -> None:
    app = Demora(f"sqlite:///{tmp_path}/jobs.db")

    async def other_loop() -> str:
        async with app:
            return (await app.enqueue("demo.echo")).id

    async def outer() -> None:
        async with app:
            id = await asyncio.to_thread(asyncio.run, other_loop())
            assert (await app.get(id)).id == id

    asyncio.run(outer())


def test_settings_are_read_once_and_again_after_a_change(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    before = app.settings
    monkeypatch.setenv("DEMORA_CONCURRENCY", "7")
    assert app.settings is before
    app.configure(lease="7s")
    assert (app.settings.concurrency, app.settings.lease.total_seconds()) == (7, 7)
