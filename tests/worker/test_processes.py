"""Process handlers: called in processes of their own, which may die of anything without harm to others."""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demora import Context, Demora, Retry, Status
from demora.errors import BadHandler, Invalid, RaisedInProcess, WrongProcess
from demora.system.child_process import spawn
from demora.system.seams import Seams
from demora.worker import Worker
from demora.worker.processes import location, pool
from demora.worker.run import GRACE, Ending
from tests.facts import eventually
from tests.worker import process_jobs
from tests.worker.conftest import ended

pytestmark = pytest.mark.slow


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Demora]:
    app = process_jobs.app
    app.configure(database_url=f"sqlite:///{tmp_path / 'jobs.db'}")
    async with app:
        yield app
    app.middlewares.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a handler writes that it is there, and whom to look for."""
    return tmp_path / "pid"


async def written(file: Path) -> int:
    return int(await eventually(lambda: asyncio.sleep(0, file.read_text() if file.exists() else "")))


async def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_handler_is_called_in_another_process_that_the_next_job_finds_ready(app: Demora) -> None:
    async with app.worker() as working:
        first = (await ended(app, await app.enqueue("pid"))).result
        job = await app.enqueue("pid.async", name="second")
        second = (await ended(app, job)).result
    assert first == {"pid": first["pid"], "parent": os.getpid(), "group": first["pid"]}
    assert second == [first["pid"], 1, "second", working.id]
    assert await is_gone(first["pid"])


async def test_twenty_jobs_through_four_slots_use_four_processes_at_most(app: Demora) -> None:
    jobs = await app.enqueue_many([("pid", {})] * 20)
    async with app.worker(concurrency=4):
        pids = {(await ended(app, job)).result["pid"] for job in jobs}
    assert 1 <= len(pids) <= 4


async def test_processes_that_die_fail_their_own_attempts_and_harm_no_other(app: Demora, file: Path) -> None:
    async with app.worker():
        bystander = await app.enqueue("tells", {"file": str(file)})
        await eventually(lambda: app.get(bystander.id), lambda job: job.progress == 0.5)
        fates = {"exits": {"code": 3}, "crashes": {}, "killed": {}, "closes": {}, "garbles": {}}
        dying = [await app.enqueue(type, payload) for type, payload in fates.items()]
        flood = await app.enqueue("floods", {"times": 3000})
        found = {job.type: await ended(app, job) for job in dying}
        assert (await ended(app, flood)).result == 3000
        await asyncio.to_thread(file.touch)
        spared = await ended(app, bystander)
    assert (spared.status, spared.token) == (Status.COMPLETED, 1)
    for job in found.values():
        assert (job.status, len(job.attempts), job.attempts[0].error) == (Status.FAILED, 2, job.error)
    died = "ProcessDied: the process of this run "
    assert found["exits"].error == died + "ended with exit code 3"
    assert found["crashes"].error == died + "ended with signal 11 (SIGSEGV)"
    assert found["killed"].error == died + "ended with signal 9 (SIGKILL)"
    assert found["closes"].error == died + "ended with exit code 1"
    assert found["garbles"].error == died + "sent an invalid message: a handler wrote into its pipe"


async def test_a_handler_that_wants_more_memory_than_it_may_have_fails(app: Demora) -> None:
    async with app.worker():
        greedy = await ended(app, await app.enqueue("greedy", {"megabytes": 2000}))
        modest = await ended(app, await app.enqueue("greedy", {"megabytes": 10}))
    assert (greedy.status, greedy.error) == (Status.FAILED, "MemoryError")
    assert modest.result == 10 * 1024**2


async def test_a_timeout_kills_even_what_holds_the_interpreter_and_frees_its_slot_at_once(app: Demora, file: Path) -> None:
    async with app.worker(concurrency=1) as working:
        pid = (await ended(app, await app.enqueue("pid"))).result["pid"]
        found = await ended(app, await app.enqueue("hogs", {"file": str(file)}, timeout="300ms"))
        assert found.error == "TimedOut: the run took longer than its timeout"
        assert working._stuck == 0
        assert (await ended(app, await app.enqueue("demo.echo"))).status is Status.COMPLETED
        await eventually(lambda: is_gone(pid))


async def test_a_kill_also_ends_what_the_handler_started(app: Demora, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRACE, Ending.CANCEL, 0.05)
    async with app.worker():
        job = await app.enqueue("starts", {"file": str(file)})
        program = await written(file)
        await app.cancel(job.id)
        await eventually(lambda: is_gone(program))


async def test_the_start_of_a_process_does_not_count_against_the_timeout(
    app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_IMPORT", "0.8")
    async with app.worker():
        job = await app.enqueue("pid", timeout="700ms", max_retries=0)
        assert (await ended(app, job)).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("type", "payload", "status", "error"),
    [
        ("waits", {"says": ""}, Status.CANCELLED, "cancelled while running"),
        ("waits", {"says": "success"}, Status.COMPLETED, None),
        ("looks", {}, Status.CANCELLED, "as you asked"),
        ("asks", {}, Status.CANCELLED, "cancelled while running"),
        ("hangs", {}, Status.CANCELLED, "cancelled while running"),
    ],
)
async def test_a_cancel_is_heard_in_the_process_which_is_killed_if_it_goes_on(
    app: Demora, file: Path, monkeypatch: pytest.MonkeyPatch, type: str, payload: Any, status: Status, error: str | None
) -> None:
    if type == "hangs":
        monkeypatch.setitem(GRACE, Ending.CANCEL, 0.05)
    async with app.worker():
        job = await app.enqueue(type, payload | {"file": str(file)})
        pid = await written(file)
        await app.cancel(job.id)
        found = await ended(app, job)
        assert (found.status, found.error) == (status, error)
        if type == "hangs":
            await eventually(lambda: is_gone(pid))


async def test_the_log_shows_where_a_handler_failed_in_its_process(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    async with app.worker():
        await ended(app, await app.enqueue("raises.async"))
    [record] = [record for record in caplog.records if getattr(record, "event", "") == "job.failed"]
    assert record.exc_info is not None
    assert ", in raises_async\n" in logging.Formatter().formatException(record.exc_info)  # type: ignore[arg-type]


@pytest.mark.parametrize("type", ["hangs", "looks", "asks"])
async def test_a_worker_that_stops_hands_back_and_leaves_no_process(app: Demora, file: Path, type: str) -> None:
    worker = Worker(app, grace=timedelta(0))
    running = asyncio.ensure_future(worker.run())
    job = await app.enqueue(type, {"file": str(file)})
    pid = await written(file)
    worker.stop()
    assert await running == 0
    found = await app.get(job.id)
    assert (found.status, found.attempt, found.attempts) == (Status.QUEUED, 0, ())
    assert await is_gone(pid)


async def test_progress_and_log_are_seen_while_the_process_runs(
    app: Demora, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with app.worker():
        job = await app.enqueue("tells", {"file": str(file)})
        seen = await eventually(lambda: app.get(job.id), lambda job: job.progress is not None and job.log)
        assert (seen.status, seen.progress, seen.progress_message) == (Status.PROCESSING, 0.5, "half")
        await asyncio.to_thread(file.touch)
        found = await ended(app, job)
    assert [line.line for line in found.log] == ["first line", "last line"]
    plain, traced = [record for record in caplog.records if record.name == "shop"]
    assert (plain.message, plain.levelno, plain.job_id) == ("from the process", logging.WARNING, job.id)  # type: ignore[attr-defined]
    assert "Odd: caught" in (traced.exc_text or "")


NO_SPAN = "'soon' is not a span; write for instance '250ms', '30s', '5m', '1h30m' or '7d'"


async def test_what_a_handler_raises_means_what_it_means_elsewhere(app: Demora) -> None:
    wanted = {
        "retry": (Status.FAILED, 2, "Retry: later"),
        "snooze": (Status.COMPLETED, 1, None),
        "cancel": (Status.CANCELLED, 1, "not needed"),
        "fail": (Status.FAILED, 1, "Fail: useless"),
        "detail": (Status.FAILED, 1, "Fail: useless"),
        "unjudged": (Status.FAILED, 2, f"Invalid: delay: {NO_SPAN}"),
        "permanent": (Status.FAILED, 1, "KeyError: 'gone'"),
        "exit": (Status.FAILED, 2, "SystemExit: 3"),
        "odd": (Status.FAILED, 2, "Odd: odd \\ud800 \\0 text"),
    }
    async with app.worker(concurrency=2):
        jobs = {what: await app.enqueue("raises", {"what": what}) for what in wanted}
        found = {what: await ended(app, job) for what, job in jobs.items()}
        found["async"] = await ended(app, await app.enqueue("raises.async"))
        odd = await ended(app, await app.enqueue("odd.result"))
    assert {what: (found[what].status, found[what].attempt, found[what].error) for what in wanted} == wanted
    assert (odd.status, odd.attempt) == (Status.FAILED, 1)
    assert found["detail"].attempts[0].traceback == "{'a': 1}"
    for what in ("odd", "async"):
        first, second, *_ = (found[what].attempts[0].traceback or "").splitlines()
        assert first.startswith("Traceback")
        assert "process_jobs.py" in second


async def test_a_payload_that_does_not_fit_fails_at_once_and_starts_no_process(app: Demora) -> None:
    async with Demora(app.settings.database_url) as stranger:
        job = await stranger.enqueue("exits", {"code": "three"})
    async with app.worker() as working:
        found = await ended(app, job)
        assert (found.status, found.attempt, working._processes._alive) == (Status.FAILED, 1, {})
    assert (found.error or "").startswith("Invalid: payload.code: ")


async def test_middleware_wraps_the_call_in_the_worker(app: Demora) -> None:
    seen: list[Any] = []

    @app.middleware
    async def around(ctx: Context, call_next: Any) -> Any:
        try:
            result = await call_next()
        except (Retry, RaisedInProcess) as problem:
            seen.append((os.getpid(), type(problem), str(problem)))
            raise
        return result | {"wrapped": True}

    async with app.worker():
        assert (await ended(app, await app.enqueue("pid"))).result["wrapped"]
        for what in ("retry", "odd"):
            await ended(app, await app.enqueue("raises", {"what": what}, max_retries=0))
    us = os.getpid()
    assert seen == [(us, Retry, "later"), (us, RaisedInProcess, "Odd: odd \\ud800 \\0 text")]


async def test_a_handler_may_fork_and_start_programs(app: Demora) -> None:
    async with app.worker():
        found = await ended(app, await app.enqueue("forks", max_retries=0))
        assert (found.result, found.error) == ([1, 4, 9, -signal.SIGTERM], None)
        assert (await ended(app, await app.enqueue("pid", max_retries=0))).status is Status.COMPLETED


async def test_a_handler_enqueues_into_the_database_of_its_worker(app: Demora) -> None:
    async with app.worker():
        new = (await ended(app, await app.enqueue("enqueues"))).result
        assert (await ended(app, new)).result == {"from": "a process"}


async def test_a_handler_cannot_enqueue_into_the_memory_of_its_worker(app: Demora) -> None:
    await app.close()
    app.configure(database_url="sqlite://")
    async with app, app.worker():
        found = await ended(app, await app.enqueue("enqueues", max_retries=0))
    assert found.error == "StoreError: the worker's database is in its memory: a process handler cannot reach it"


async def test_a_process_that_dies_before_it_calls_the_handler_is_replaced_and_costs_no_attempt(app: Demora) -> None:
    async with app.worker() as working:
        pid = (await ended(app, await app.enqueue("pid"))).result["pid"]
        os.kill(pid, signal.SIGSTOP)
        job = await app.enqueue("pid", max_retries=0)
        await eventually(lambda: asyncio.sleep(0, working._processes._idle), lambda idle: not idle)
        os.kill(pid, signal.SIGKILL)
        found = await ended(app, job)
    assert (found.status, found.token) == (Status.COMPLETED, 1)
    assert found.result["pid"] != pid


@pytest.mark.parametrize(
    ("command", "seconds", "fate"),
    [("exit 7", 20.0, "ended with exit code 7"), ("sleep 600", 0.2, "did not start within 0.2 s")],
)
async def test_a_process_that_does_not_come_up_fails_the_attempt(
    app: Demora, monkeypatch: pytest.MonkeyPatch, command: str, seconds: float, fate: str
) -> None:
    def start(fd: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sh", "-c", command], pass_fds=[fd], start_new_session=True)

    monkeypatch.setattr(pool, "START_UP", seconds)
    async with app.worker(seams=Seams(spawn=lambda: spawn(start))):
        found = await ended(app, await app.enqueue("pid", max_retries=0))
    assert found.error == f"ProcessDied: the process of this run {fate}"


async def test_a_process_leaves_it_to_its_worker_when_to_end(app: Demora, file: Path) -> None:
    async with app.worker():
        job = await app.enqueue("looks", {"file": str(file)}, max_retries=0)
        pid = await written(file)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        await app.cancel(job.id)
        assert (await ended(app, job)).error == "as you asked"


async def test_an_application_that_cannot_be_imported_is_refused_when_a_worker_starts(tmp_path: Path) -> None:
    app = Demora(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.job("local", process=True)(process_jobs.pid)
    with pytest.raises(BadHandler, match="handler for 'local': its process imports the application"):
        Worker(app)


async def test_a_handler_that_an_import_does_not_register_fails_with_the_reason(app: Demora) -> None:
    process_jobs.late()
    async with app.worker():
        found = await ended(app, await app.enqueue("late"))
    assert "importing tests.worker.process_jobs does not register it" in (found.error or "")


def test_no_worker_starts_where_only_handlers_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "_workers_allowed", False)
    with pytest.raises(WrongProcess, match="__main__"):
        Worker(process_jobs.app)


def test_a_limit_of_memory_needs_a_process() -> None:
    with pytest.raises(Invalid, match="memory: limits only process handlers"):
        Demora().job("x", memory="1GB")(process_jobs.pid)
    with pytest.raises(Invalid, match="memory: a size is text like"):
        Demora().job("x", process=True, memory="1")(process_jobs.pid)
