"""What users test their own jobs with: a store in memory, a clock to turn, the real worker until nothing is due."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from demora import Demora, Status, testing
from demora.errors import WouldBlock
from demora.testing import CallerThread, NeverIdle, Sandbox
from tests.testing.conftest import NOON


async def test_a_drain_runs_what_is_due_and_what_that_enqueues(app: Demora, sandbox: Sandbox) -> None:
    await app.enqueue("count", {"down_from": 3})
    drained = await sandbox.drain()
    assert [job.result for job in drained.ended] == [3, 2, 1, 0]
    assert (await sandbox.drain()).jobs == []


async def test_handlers_on_threads_enqueue_into_the_sandbox(app: Demora, sandbox: Sandbox) -> None:
    await app.enqueue("count.plain", {"down_from": 3})
    assert {job.result for job in (await sandbox.drain()).ended} == {3, 2, 1, 0}


def test_all_of_it_works_without_an_event_loop(app: Demora, sandbox: Sandbox) -> None:
    app.blocking.enqueue("count.plain", {"down_from": 2})
    app.blocking.enqueue("count", {"down_from": 1}, delay="1h")
    assert len(sandbox.blocking.drain().ended) == 3
    assert len(sandbox.blocking.advance("1h").ended) == 2
    assert [job.payload["down_from"] for job in sandbox.blocking.enqueued("count")] == [1, 0]
    app.blocking.close()


async def test_nothing_runs_before_its_time_and_everything_at_it(app: Demora, sandbox: Sandbox) -> None:
    job = await app.enqueue("demo.echo", {"hi": 1}, delay="1h")
    assert (await sandbox.drain()).jobs == []
    assert (await sandbox.advance("59m59s999ms")).jobs == []
    assert [done.id for done in (await sandbox.advance("1ms")).ended] == [job.id]
    assert sandbox.clock.now() == NOON + timedelta(hours=1)


async def test_time_passes_from_one_due_moment_to_the_next(app: Demora, sandbox: Sandbox) -> None:
    await app.enqueue("count", {"down_from": 5, "by": "20m"})
    drained = await sandbox.advance("1h")
    assert [(job.result, job.started_at) for job in drained.ended] == [
        (5 - n, NOON + n * timedelta(minutes=20)) for n in range(4)
    ]


async def test_retries_run_at_their_times_and_failures_are_told(app: Demora, sandbox: Sandbox) -> None:
    job = await app.enqueue("break")
    [failed] = (await sandbox.drain()).failures
    assert (failed.id, failed.status, failed.error) == (job.id, Status.RETRYING, "Retry: not yet")
    drained = await sandbox.advance("3s")
    assert [(job.status, len(job.attempts)) for job in drained.failures] == [(Status.FAILED, 3)]


async def test_what_was_enqueued_can_be_asked_for_by_type_and_payload(app: Demora, sandbox: Sandbox) -> None:
    jobs = await app.enqueue_many([("demo.echo", {"to": "a", "n": n}) for n in range(250)])
    await app.enqueue("demo.fail", {"to": "a"})
    assert [job.id for job in await sandbox.enqueued("demo.echo", to="a")] == [job.id for job in jobs]
    assert len(await sandbox.enqueued()) == 251
    assert [job.payload["n"] for job in await sandbox.enqueued("demo.echo", n=249)] == [249]
    assert await sandbox.enqueued(to="b") == []


async def test_a_handler_that_enqueues_itself_for_ever_is_told_of(
    app: Demora, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "MOST_RUNS", 50)
    await app.enqueue("again")
    with pytest.raises(NeverIdle, match="does a handler enqueue itself"):
        await sandbox.drain()


async def test_each_sandbox_begins_empty_and_the_real_database_is_left_alone(app: Demora, tmp_path: Path) -> None:
    app.configure(database_url=f"sqlite:///{tmp_path}/real.db")
    for _ in range(2):
        with Sandbox(app) as sandbox:
            await app.enqueue("demo.echo")
            assert len(await sandbox.enqueued()) == 1
    assert await app.schema_version() is None
    async with app:
        assert (await app.find()).jobs == []


async def test_a_time_taken_from_the_usual_clock_is_reached(app: Demora) -> None:
    with Sandbox(app) as sandbox:
        await app.enqueue("demo.echo", at=datetime.now(UTC) + timedelta(hours=1))
        assert (await sandbox.advance("59m")).jobs == []
        assert len((await sandbox.advance("1m")).ended) == 1


async def test_an_async_test_may_go_on_after_a_first_call_from_a_thread(app: Demora, sandbox: Sandbox) -> None:
    await asyncio.to_thread(app.blocking.enqueue, "count.plain", {"down_from": 1})
    assert len((await sandbox.drain()).ended) == 2
    assert len(await sandbox.enqueued("count.plain")) == 2
    assert (await sandbox.advance("1h")).jobs == []
    await asyncio.to_thread(app.blocking.close)


async def test_a_blocking_call_on_an_event_loop_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(WouldBlock, match="drain"):
        sandbox.blocking.drain()


def test_functions_run_on_the_thread_of_a_test_that_waits() -> None:
    caller = CallerThread()
    assert caller.wait_for(lambda: caller.submit(threading.get_ident).result()) == threading.get_ident()
    assert caller.wait_for(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        caller.wait_for(lambda: caller.submit(lambda: 1 // 0).result())
    assert not caller.waits


def test_an_application_knows_its_sandbox_only_inside_of_it(app: Demora) -> None:
    with Sandbox(app) as sandbox:
        assert app.sandbox is sandbox
    assert app.sandbox is None
