"""What the log says about runs: their starts and ends, and failures with the place where they happened."""

import asyncio
import logging
import traceback
from collections.abc import Iterator
from datetime import timedelta

import pytest

from demora import Cancel, Context, Demora, Fail, Job, Retry, Snooze
from demora.store.jobs import ClaimRequest
from demora.system import error_texts, notices
from demora.system.log_limit import MOST_A_SECOND, Burst
from tests.sim.loop import SimLoop
from tests.worker.conftest import ended


@pytest.fixture(autouse=True)
def _usual_log() -> Iterator[None]:
    yield
    notices.show_ends(False)
    error_texts.configure("text")


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", "") == event]


async def run_one(app: Demora, problem: BaseException | None, **options: object) -> Job:
    """The job of a handler that raises this, or returns, once it has ended."""

    @app.job("shop.order", retry_delay="1ms", **options)  # type: ignore[arg-type]
    async def order() -> None:
        if problem is not None:
            raise problem

    async with app.worker():
        return await ended(app, await order.enqueue())


async def test_a_failed_attempt_is_a_warning_and_a_dead_letter_an_error_with_the_traceback_of_the_handler(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    job = await run_one(app, LookupError("no stock"), max_retries=1)
    records = said(caplog, "job.failed")
    assert [(record.levelname, record.getMessage()) for record in records] == [
        ("WARNING", f"job {job.id} (shop.order) attempt 1 failed, now RETRYING: LookupError: no stock"),
        ("ERROR", f"job {job.id} (shop.order) attempt 2 failed, now FAILED: LookupError: no stock"),
    ]
    for record in records:
        assert record.exc_info is not None
        assert record.exc_info[0] is LookupError
        assert {frame.name for frame in traceback.extract_tb(record.exc_info[2])} == {"order"}


async def test_an_error_is_logged_in_its_own_letters_and_on_one_line(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    await run_one(app, LookupError("señor Müller → 存\nforged \x1b[31m\u202e"), max_retries=0)
    [record] = said(caplog, "job.failed")
    assert record.getMessage().endswith(r"LookupError: señor Müller → 存\nforged \x1b[31m\u202e")


async def test_a_plain_handler_has_its_traceback_too(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    @app.job("plain", max_retries=0)
    def plain() -> None:
        raise LookupError("no stock")

    async with app.worker():
        await ended(app, await plain.enqueue())
    [record] = said(caplog, "job.failed")
    assert record.exc_info is not None
    assert [frame.name for frame in traceback.extract_tb(record.exc_info[2])] == ["plain"]


async def test_a_retry_that_the_handler_asked_for_is_one_line_at_info_and_its_last_one_an_error(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "demora")
    await run_one(app, Retry("the bank is closed"), max_retries=1)
    first, last = said(caplog, "job.failed")
    assert (first.levelname, first.exc_info, first.exc_text) == ("INFO", None, None)
    assert (last.levelname, last.exc_info is None) == ("ERROR", False)


async def test_a_job_that_its_handler_fails_is_an_error_at_once(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    await run_one(app, Fail("no such user"))
    assert [record.levelname for record in said(caplog, "job.failed")] == ["ERROR"]


async def test_a_lapse_that_makes_a_dead_letter_is_an_error(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    retried, spent = await app.enqueue("demo.echo"), await app.enqueue("demo.echo", max_retries=0)
    await (await app.open()).store.claim(ClaimRequest("a worker that dies", 2, lease=timedelta(milliseconds=20)))
    async with app.worker():
        await ended(app, retried)
        await ended(app, spent)
    levels = {record.__dict__["facts"]["status"]: record.levelname for record in said(caplog, "job.lapsed")}
    assert levels == {"RETRYING": "WARNING", "FAILED": "ERROR"}


async def test_no_record_has_the_text_of_an_error_if_the_setting_says_so(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    app.configure(log_errors="class")
    job = await run_one(app, LookupError("a value of the payload"), max_retries=0)
    [record] = said(caplog, "job.failed")
    assert record.exc_info is None  # other handlers of the log, such as Sentry's, would read its text and its variables
    assert "in order" in (record.exc_text or "")
    assert (record.exc_text or "").endswith("LookupError")
    assert "a value of the payload" not in caplog.text
    assert job.error == "LookupError: a value of the payload"


async def test_each_start_and_end_has_a_line_for_those_who_debug(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "demora")
    snoozed = []

    @app.job("sleepy")
    async def sleepy(ctx: Context) -> None:
        if not snoozed:
            snoozed.append(ctx.id)
            raise Snooze("1ms")

    async with app.worker():
        job = await ended(app, await sleepy.enqueue())
    records = [record for record in caplog.records if getattr(record, "event", "").startswith("job.")]
    events = ["job.started", "job.put_back", "job.started", "job.completed"]
    assert [record.__dict__["event"] for record in records] == events
    assert {record.levelname for record in records} == {"DEBUG"}
    assert all(record.getMessage().count(job.id) == 1 for record in records)


@pytest.mark.parametrize("shown", [True, False])
async def test_a_terminal_shows_each_completed_job(app: Demora, caplog: pytest.LogCaptureFixture, shown: bool) -> None:
    caplog.set_level("INFO", "demora")
    notices.show_ends(shown)
    job = await run_one(app, None)
    records = said(caplog, "job.completed")
    assert [record.levelname for record in records] == ["INFO"] * shown
    assert all(record.getMessage().startswith(f"job {job.id} (shop.order) completed in ") for record in records)


async def test_many_completed_jobs_are_counted_in_the_terminal_and_none_is_forgotten(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "demora")
    notices.show_ends(True)
    async with app.worker():
        for job in await app.enqueue_many([("demo.echo", {})] * 60):
            await ended(app, job)
    counted = sum(record.__dict__["facts"]["jobs"] for record in said(caplog, "job.completed_many"))
    assert len(said(caplog, "job.completed")) + counted == 60


async def test_the_end_of_a_cancelled_job_is_no_failure(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "demora")
    await run_one(app, Cancel("not needed"))
    assert [record.levelname for record in said(caplog, "job.cancelled")] == ["INFO"]
    assert said(caplog, "job.failed") == []


def lines_of(events: list[float]) -> tuple[list[float], list[tuple[float, int]]]:
    """The times at which an event had a line of its own, and when and with what number the others were summarized."""
    lines, summaries = list[float](), list[tuple[float, int]]()

    async def happen() -> None:
        loop = asyncio.get_running_loop()
        burst = Burst(lambda left_out: summaries.append((round(loop.time(), 3), left_out)))
        for at in events:
            await asyncio.sleep(at - loop.time())
            if burst.admits():
                lines.append(at)
        await asyncio.sleep(2.5)
        burst.close()

    SimLoop(1).run_until_complete(happen())
    return lines, summaries


def test_a_few_events_a_second_have_a_line_each() -> None:
    events = [n / MOST_A_SECOND for n in range(5 * MOST_A_SECOND)]
    assert lines_of(events) == (events, [])


def test_more_are_one_summary_a_second_until_there_are_few_again() -> None:
    flood, few = [0.5 + n / 100 for n in range(300)], [10.0, 11.0]
    lines, summaries = lines_of([*flood, *few])
    assert lines == [*flood[:MOST_A_SECOND], *few]
    assert [at for at, _ in summaries] == [1.5, 2.5, 3.5]
    assert sum(left_out for _, left_out in summaries) == len(flood) - MOST_A_SECOND


def test_the_rest_of_a_burst_is_summarized_at_the_end() -> None:
    summaries = list[int]()

    async def happen() -> None:
        burst = Burst(summaries.append)
        for _ in range(MOST_A_SECOND + 3):
            burst.admits()
        burst.close()

    SimLoop(1).run_until_complete(happen())
    assert summaries == [3]
