"""How runs end: retries, signals, timeouts, cancels, lost leases."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from demora import Cancel, Context, Demora, Fail, Job, Retry, Snooze, Status
from demora.errors import JobFailed, StillRunning, WrongState
from demora.system.seams import Seams
from demora.worker import Worker, worker
from demora.worker.block import working
from tests.facts import eventually
from tests.stalls import Stalls
from tests.worker.conftest import Gate, ended

TEN = timedelta(milliseconds=10)
ABOUT_THE_LOOP = {"worker.loop_blocked", "worker.loop_free"}  # events that a busy machine causes too


def waits(job: Job) -> list[timedelta]:
    """The time between the end of each attempt and the start of the next."""
    pairs = zip(job.attempts, job.attempts[1:], strict=False)
    return [after.started_at - before.ended_at for before, after in pairs if after.started_at and before.ended_at]


async def test_a_failing_job_is_tried_again_after_growing_waits_and_then_fails(app: Demora) -> None:
    async with app.worker():
        found = await ended(app, await app.enqueue("demo.fail", {"message": "no"}, max_retries=3, retry_delay="10ms"))
    assert (found.status, found.retry_count, len(found.attempts)) == (Status.FAILED, 3, 4)
    assert all(wait >= TEN * 2**n for n, wait in enumerate(waits(found)))
    assert found.error == "RuntimeError: no"


async def test_each_attempt_is_recorded_with_worker_start_end_error_and_traceback(app: Demora) -> None:
    async with app.worker() as working:
        found = await ended(app, await app.enqueue("demo.fail", max_retries=1, retry_delay="1ms"))
    for attempt in found.attempts:
        assert attempt.worker_id == working.id
        assert attempt.started_at is not None
        assert attempt.ended_at is not None
        assert attempt.started_at <= attempt.ended_at
        assert "RuntimeError" in (attempt.error or "")
        assert "Traceback" in (attempt.traceback or "")


async def test_a_handler_can_say_when_to_try_again(app: Demora) -> None:
    @app.job("picky")
    async def picky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry("later", after="20ms")
        return "ok"

    async with app.worker():
        found = await ended(app, await picky.options(retry_delay="1h").enqueue())
    assert (found.status, found.retry_count) == (Status.COMPLETED, 1)
    assert waits(found)[0] >= TEN * 2


async def test_a_snooze_is_no_attempt(app: Demora) -> None:
    runs = []

    @app.job("sleepy")
    async def sleepy(ctx: Context) -> str:
        runs.append(ctx.attempt)
        if len(runs) < 4:
            raise Snooze("5ms")
        return "awake"

    async with app.worker():
        found = await ended(app, await sleepy.options(max_retries=0).enqueue())
    assert (found.status, found.attempt, found.token, runs) == (Status.COMPLETED, 1, 4, [1, 1, 1, 1])


async def test_a_handler_can_cancel_its_job(app: Demora) -> None:
    @app.job("quits")
    async def quits() -> None:
        raise Cancel("not needed any more")

    async with app.worker():
        found = await ended(app, await quits.enqueue())
    assert (found.status, found.error) == (Status.CANCELLED, "not needed any more")


async def test_a_permanent_error_fails_at_once(app: Demora) -> None:
    @app.job("hopeless")
    async def hopeless() -> None:
        raise Fail("no such user")

    @app.job("listed", permanent=(KeyError,))
    async def listed() -> None:
        raise KeyError("gone")

    async with app.worker():
        for job in (await hopeless.enqueue(), await listed.enqueue()):
            found = await ended(app, job)
            assert (found.status, found.retry_count, len(found.attempts)) == (Status.FAILED, 0, 1)


async def test_signals_need_no_reason(app: Demora) -> None:
    @app.job("raises", max_retries=1, retry_delay="1ms")
    async def raises(signal: str) -> None:
        raise {"fail": Fail, "retry": Retry, "cancel": Cancel}[signal]

    async with app.worker():
        jobs = [await raises.enqueue(signal=signal) for signal in ("fail", "retry", "cancel")]
        found = [await ended(app, job) for job in jobs]
    assert [(job.status, len(job.attempts), job.error) for job in found] == [
        (Status.FAILED, 1, "Fail: the handler says that trying again is useless"),
        (Status.FAILED, 2, "Retry: the handler asked for a retry"),
        (Status.CANCELLED, 1, "cancelled by its handler"),
    ]


async def test_an_exception_without_a_text_is_recorded_by_its_name(app: Demora) -> None:
    @app.job("silent", max_retries=0)
    async def silent() -> None:
        raise MemoryError

    async with app.worker():
        assert (await ended(app, await silent.enqueue())).error == "MemoryError"


async def test_a_run_that_takes_too_long_is_ended_and_tried_again(app: Demora) -> None:
    @app.job("slow", timeout="30ms", max_retries=1, retry_delay="1ms")
    async def slow(ctx: Context) -> str:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "quick"

    async with app.worker():
        found = await ended(app, await slow.enqueue())
    assert (found.status, found.retry_count) == (Status.COMPLETED, 1)
    assert "TimedOut" in (found.attempts[0].error or "")


async def test_the_timeout_of_a_job_comes_before_that_of_its_type(app: Demora) -> None:
    @app.job("slow", max_retries=0)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with app.worker():
        found = await ended(app, await slow.options(timeout="20ms").enqueue())
    assert "TimedOut" in (found.error or "")


async def test_a_timed_out_thread_keeps_its_slot_and_others_go_on(app: Demora) -> None:
    let_go = threading.Event()

    @app.job("stuck", timeout="20ms", max_retries=0)
    def stuck() -> None:
        let_go.wait(60)

    async with app.worker(concurrency=3) as working:
        found = await ended(app, await stuck.enqueue())
        assert "TimedOut" in (found.error or "")
        assert working._stuck == 1
        await ended(app, await app.enqueue("demo.echo"))
        let_go.set()
        await eventually(lambda: asyncio.sleep(0, working._stuck), lambda stuck: stuck == 0)


async def test_a_prefetched_job_does_not_start_in_the_slot_of_a_thread_that_goes_on(app: Demora, gate: Gate) -> None:
    let_go, running = threading.Event(), 0

    @app.job("stuck", timeout="20ms", max_retries=0)
    def stuck() -> None:
        let_go.wait(60)

    @app.job("waits")
    async def waits() -> None:
        nonlocal running
        running += 1
        await gate.arrive()

    ids = [job.id for job in await app.enqueue_many([("stuck", {}), *[("waits", {})] * 3])]
    ahead = Worker(app, concurrency=3)
    ahead._prefetch.idle(asyncio.get_running_loop().time())
    ahead._prefetch.jobs = 1
    async with working(ahead):
        await ended(app, ids[0])
        assert (running, len(ahead._backlog)) == (2, 1)
        let_go.set()
        await eventually(lambda: asyncio.sleep(0, running), lambda number: number == 3)
        gate.open()


async def test_a_thread_that_ends_soon_after_its_timeout_does_not_stop_its_worker(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    looking = threading.Event()

    @app.job("looks", timeout="20ms", max_retries=0)
    def looks(ctx: Context) -> None:
        while not ctx.cancel_requested:
            looking.wait(0.01)

    async with app.worker(concurrency=1):
        assert "TimedOut" in ((await ended(app, await looks.enqueue())).error or "")
        assert (await ended(app, await app.enqueue("demo.echo"))).status is Status.COMPLETED
    assert "still runs although" not in caplog.text


async def test_a_worker_with_half_of_its_slots_stuck_drains_and_says_so(
    app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "THREAD_GRACE", 0.02)
    let_go = threading.Event()

    @app.job("stuck", timeout="20ms", max_retries=0)
    def stuck() -> None:
        let_go.wait(60)

    await app.enqueue_many([("stuck", {})])
    async with asyncio.timeout(60):
        assert await Worker(app, concurrency=2, grace=timedelta(0)).run() == 1
    let_go.set()


async def test_plain_handlers_that_outlast_their_worker_are_one_warning(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    let_go, begun = threading.Event(), threading.Barrier(4)

    @app.job("slow")
    def slow() -> None:
        begun.wait(60)
        let_go.wait(60)

    async with app.worker(grace=timedelta(0)) as working:
        jobs = await app.enqueue_many([("slow", {})] * 3)
        await asyncio.to_thread(begun.wait, 60)
    let_go.set()
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]  # other tests may ask for more
    of_handlers = [record for record in warnings if getattr(record, "event", "") not in ABOUT_THE_LOOP]
    said = [(record.levelname, record.getMessage()) for record in of_handlers]
    expected = f"worker {working.id} stops while 3 handlers still run (slow): their jobs are handed back"
    assert said == [("WARNING", expected)]
    assert [(await app.get(job.id)).status for job in jobs] == [Status.QUEUED] * 3


async def test_a_handler_that_swallows_its_cancellation_is_settled_without_it(
    app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "UNWIND", 0.02)
    let_go = asyncio.Event()

    @app.job("stubborn", timeout="20ms", max_retries=0)
    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async with app.worker(concurrency=4):
        assert "TimedOut" in ((await ended(app, await stubborn.enqueue())).error or "")
        let_go.set()


async def test_the_first_reason_to_end_is_the_one_that_counts(app: Demora, gate: Gate) -> None:
    told = asyncio.Event()

    @app.job("slow")
    async def slow() -> None:
        try:
            await gate.arrive()
        except asyncio.CancelledError:
            told.set()
            await asyncio.Event().wait()

    async with app.worker(grace=timedelta(0)):
        job = await slow.enqueue()
        await gate.reached()
        await app.cancel(job.id)
        await told.wait()
    assert (await app.get(job.id)).status is Status.CANCELLED


async def test_a_stopping_worker_hands_back_even_what_swallows_its_cancellation(app: Demora, gate: Gate) -> None:
    let_go = asyncio.Event()

    @app.job("stubborn")
    async def stubborn() -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.arrive()
                await let_go.wait()

    async with app.worker(grace=timedelta(0)):
        job = await stubborn.enqueue()
        await gate.reached()
    found = await app.get(job.id)
    assert (found.status, found.attempt) == (Status.QUEUED, 0)
    let_go.set()
    gate.open()


async def test_a_handler_can_have_its_own_jitter_and_longest_wait(app: Demora) -> None:
    @app.job("flaky", max_retries=3, retry_delay="10s", retry_cap="12s", jitter=1.0)
    async def flaky() -> None:
        raise LookupError

    async with app.worker(seams=Seams(chance=lambda: 0.5)):
        job = await flaky.enqueue()
        for failures, wait in ((1, 5), (2, 6)):
            found = await eventually(lambda: app.get(job.id), lambda job, n=failures: len(job.attempts) == n)  # type: ignore[misc]
            assert found.due_at - found.attempts[-1].ended_at == timedelta(seconds=wait)
            await app.reschedule(job.id, delay="0s")


async def test_a_waiting_job_is_cancelled_at_once(app: Demora) -> None:
    job = await app.enqueue("demo.echo", delay="1h")
    assert await app.cancel(job.id) is Status.CANCELLED
    with pytest.raises(WrongState, match="it is CANCELLED"):
        await app.cancel(job.id)
    with pytest.raises(WrongState, match="reschedule takes a job that is QUEUED or RETRYING"):
        await app.reschedule(job.id, delay="1h")


@pytest.mark.timed
async def test_a_running_job_hears_of_its_cancel_within_a_second(app: Demora, gate: Gate, stalls: Stalls) -> None:
    @app.job("long")
    async def long() -> None:
        await gate.arrive()

    async with app.worker():
        job = await long.enqueue()
        await gate.reached()
        assert await app.cancel(job.id) is Status.PROCESSING
        found = await ended(app, job)
    assert found.status is Status.CANCELLED
    assert found.completed_at is not None
    assert found.cancel_requested_at is not None
    stood_still = await stalls.between(found.cancel_requested_at, found.completed_at)
    assert found.completed_at - found.cancel_requested_at - stood_still < timedelta(seconds=1)


async def cancelled_while_it_looks(app: Demora, then: Callable[[], Any]) -> Job:
    """The job of a plain function that looks whether it should end, is asked to, and does `then`."""
    started, looking = threading.Event(), threading.Event()

    @app.job("looks")
    def looks(ctx: Context) -> Any:
        started.set()
        while not ctx.cancel_requested:
            looking.wait(0.01)
        return then()

    job = await looks.enqueue()
    await asyncio.to_thread(started.wait, 60)
    await app.cancel(job.id)
    return await ended(app, job)


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_handler_that_asks_whether_it_is_cancelled_ends_cancelled(app: Demora, kind: str) -> None:
    found = await asks_until_it_ends(app, kind, app.cancel)
    assert (found.status, found.error, len(found.attempts)) == (Status.CANCELLED, "cancelled while running", 1)


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_handler_that_asks_when_its_worker_stops_is_handed_back(app: Demora, kind: str) -> None:
    async def stop(_: str) -> None: ...

    found = await asks_until_it_ends(app, kind, stop)
    assert (found.status, found.attempt, found.attempts) == (Status.QUEUED, 0, ())


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_handler_that_asks_when_its_time_is_up_has_timed_out(app: Demora, kind: str) -> None:
    found = await asks_until_it_ends(app, kind, lambda id: ended(app, id), timeout="20ms", max_retries=0)
    assert (found.status, found.error) == (Status.FAILED, "TimedOut: the run took longer than its timeout")


async def asks_until_it_ends(app: Demora, kind: str, end: Callable[[str], Awaitable[object]], **options: Any) -> Job:
    """The job of a handler that only asks whether it should end, after that was done to it."""
    started, looking = threading.Event(), threading.Event()

    @app.job("plain", **options)
    def plain(ctx: Context) -> None:
        started.set()
        while True:
            ctx.raise_if_cancelled()
            looking.wait(0.005)

    @app.job("async", **options)
    async def swallows(ctx: Context) -> None:
        started.set()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)
            ctx.raise_if_cancelled()

    async with app.worker(grace=timedelta(0)):
        job = await app.enqueue(kind)
        await asyncio.to_thread(started.wait, 60)
        await end(job.id)
        if end == app.cancel:
            await ended(app, job)
    return await app.get(job.id)


def obey() -> None:
    raise Cancel("as you asked")


def fail() -> None:
    raise ValueError("half done")


async def test_a_plain_function_can_look_whether_it_should_end(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "demora")
    async with app.worker():
        found = await cancelled_while_it_looks(app, obey)
    assert (found.status, found.error) == (Status.CANCELLED, "as you asked")
    said = f"job {found.id} (looks) attempt 1 was cancelled: as you asked"
    assert said_of_jobs(caplog) == [("INFO", "job.cancelled", said)]


def said_of_jobs(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """The level, event and message of what was logged about single jobs."""
    events = [(record.levelname, getattr(record, "event", ""), record.getMessage()) for record in caplog.records]
    return [said for said in events if said[1].startswith("job.")]


async def test_a_plain_function_may_still_end_well_soon_after_its_cancel(app: Demora) -> None:
    async with app.worker():
        found = await cancelled_while_it_looks(app, lambda: "tidied up")
    assert (found.status, found.result) == (Status.COMPLETED, "tidied up")


async def test_a_plain_function_that_fails_because_of_its_cancel_is_not_tried_again(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "demora")
    async with app.worker():
        found = await cancelled_while_it_looks(app, fail)
    assert (found.status, found.attempts[0].error) == (Status.CANCELLED, "ValueError: half done")
    said = f"job {found.id} (looks) attempt 1 was cancelled: ValueError: half done"
    assert said_of_jobs(caplog) == [("INFO", "job.cancelled", said)]


async def test_a_cancelled_plain_function_that_heeds_it_does_not_cost_its_worker_a_slot(app: Demora) -> None:
    async with app.worker(concurrency=1):
        assert (await cancelled_while_it_looks(app, obey)).status is Status.CANCELLED
        assert (await ended(app, await app.enqueue("demo.echo"))).status is Status.COMPLETED


async def test_a_success_stands_although_a_cancel_was_asked_for(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> str:
        await gate.arrive()
        return "done"

    async with app.worker():
        job = await long.enqueue()
        await gate.reached()
        await app.cancel(job.id)
        gate.open()
        assert (await ended(app, job)).status is Status.COMPLETED


async def test_a_job_of_an_unknown_type_is_never_claimed_and_holds_up_no_other(app: Demora) -> None:
    strange = await app.enqueue("nobody.knows", max_retries=0)
    async with app.worker():
        assert (await app.wait((await app.enqueue("demo.echo")).id)).status is Status.COMPLETED
    found = await app.get(strange.id)
    assert (found.status, found.token, found.due_at) == (Status.QUEUED, 0, strange.due_at)


async def test_waiting_for_a_result_tells_how_the_job_ended(app: Demora, gate: Gate) -> None:
    with pytest.raises(StillRunning):
        await app.result((await app.enqueue("demo.echo", delay="1h")).id, "1ms")
    async with app.worker():
        with pytest.raises(JobFailed, match="FAILED: RuntimeError"):
            await app.result((await app.enqueue("demo.fail", max_retries=0)).id, "60s")


async def test_a_failed_job_runs_again_when_retried_by_hand(app: Demora) -> None:
    runs = []

    @app.job("second.time")
    async def second_time() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise Fail("not yet")
        return "ok"

    async with app.worker():
        job = await second_time.enqueue()
        assert (await ended(app, job)).status is Status.FAILED
        assert (await app.retry(job.id)).generation == 2
        found = await ended(app, job)
    assert (found.status, found.attempt, len(found.attempts)) == (Status.COMPLETED, 1, 2)
