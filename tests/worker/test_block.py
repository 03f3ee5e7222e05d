"""The block of `app.worker()` begins once the worker works, and ends when it dies."""

import asyncio
import contextlib

import pytest

from demora import Demora
from demora.errors import WorkerDied
from tests.worker.conftest import ended


async def test_a_worker_that_cannot_start_raises_before_the_block_begins(app: Demora) -> None:
    @app.on_startup
    def start() -> None:
        raise LookupError("no such cache")

    with pytest.raises(LookupError, match="no such cache"):
        async with app.worker():
            raise AssertionError
    assert (await app.find()).jobs == []  # and leaves the store open


async def test_the_block_begins_after_the_startup_hooks(app: Demora) -> None:
    calls = []

    @app.on_startup
    async def start() -> None:
        await asyncio.sleep(0)
        calls.append("start")

    async with app.worker():
        assert calls == ["start"]


async def test_a_worker_that_gives_up_ends_the_block_and_whatever_that_waits_for(app: Demora) -> None:
    job = await app.enqueue("demo.echo", delay="1h")

    async def block() -> None:
        async with app.worker():
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(app.close()))
            await app.wait(job.id)

    with pytest.raises(WorkerDied, match="gave up: its store was closed"):
        await asyncio.wait_for(block(), 60)


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_worker_that_dies_ends_the_block_with_its_error(
    app: Demora, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    async def block() -> None:
        async with app.worker() as worker:
            monkeypatch.setattr(worker, "_claim", dies)
            worker._wake()
            with contextlib.suppress(asyncio.CancelledError if stubborn else ()):
                await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(60):
            await block()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_who_is_cancelled_from_elsewhere_is_cancelled_though_the_worker_dies_too(
    app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def block() -> None:
        async with app.worker() as worker:
            monkeypatch.setattr(worker, "_wind_down", dies)
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(block())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_worker_that_is_stopped_within_its_block_does_not_end_it(app: Demora) -> None:
    async with app.worker() as first:
        first.stop()
        async with app.worker():
            await ended(app, await app.enqueue("demo.echo"))


async def test_a_worker_that_cannot_be_made_raises_before_the_block_begins(app: Demora) -> None:
    with pytest.raises(TypeError, match="slots"):
        async with app.worker(slots=3):
            raise AssertionError


async def dies() -> None:
    1 / 0  # noqa: B018
