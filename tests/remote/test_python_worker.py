"""Our own worker over HTTP: `demora worker --url …` runs jobs as it does on a database."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from demora import Cancel, Context, Demora, Fail, Retry, Snooze, Status
from demora.core.access import Scope
from demora.core.job import Lane
from tests.api.keys import key_for
from tests.facts import eventually
from tests.remote.test_kit import ALL_KEPT, LEASE, kit_service, verdict
from tests.servers.nearby import serving
from tests.servers.proxy import before

APP = """
import asyncio
from demora import Demora, Fail
app = Demora()

@app.job("example.sum")
async def sum_up(numbers: list[int]) -> int:
    return sum(numbers)

@app.job("example.sleep")
async def rest(ms: int) -> str:
    await asyncio.sleep(ms / 1000)
    return "rested"

@app.job("example.fail")
async def fail(permanent: bool) -> None:
    raise (Fail if permanent else ValueError)("as asked")
"""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Demora]:
    async with Demora(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


@pytest.fixture
async def url(service: Demora) -> AsyncIterator[str]:
    async with serving(service) as url:
        yield url


@pytest.fixture
async def app(service: Demora, url: str) -> AsyncIterator[Demora]:
    """The application of the worker, whose key may do nothing else."""
    async with Demora(url, api_key=await key_for(service, Scope.WORK)) as app:
        yield app


async def test_each_end_of_a_run_is_recorded_as_on_a_database(service: Demora, app: Demora) -> None:
    @app.job("end")
    async def end(ctx: Context, how: str) -> dict[str, int]:
        ctx.progress(0.5, "half")
        ctx.log("a line")
        raised = {"raise": ValueError("no"), "retry": Retry("later", after="1h"), "cancel": Cancel("no need")}
        if how in raised:
            raise raised[how]
        if how == "snooze":
            raise Snooze("1h")
        if how == "fail":
            raise Fail("for good")
        return {"attempt": ctx.attempt}

    ids = {how: (await service.enqueue("end", {"how": how}, retry_delay="2h")).id for how in
           ("return", "raise", "retry", "cancel", "snooze", "fail")}  # fmt: skip
    async with app.worker():
        for id in ids.values():
            await _settled(service, id)
    ended = {how: await service.get(id) for how, id in ids.items()}
    assert {how: job.status.name for how, job in ended.items()} == {
        "return": "COMPLETED",
        "raise": "RETRYING",
        "retry": "RETRYING",
        "cancel": "CANCELLED",
        "snooze": "QUEUED",
        "fail": "FAILED",
    }
    assert (ended["return"].result, ended["return"].progress) == ({"attempt": 1}, 0.5)
    assert [line.line for line in ended["return"].log] == ["a line"]
    assert ended["raise"].error == "ValueError: no"
    assert "raise raised[how]" in (ended["raise"].attempts[0].traceback or "")
    assert (ended["cancel"].error, ended["fail"].error) == ("no need", "Fail: for good")
    waits = {how: ended[how].due_at - ended[how].created_at for how in ("raise", "retry", "snooze")}
    assert {how: round(wait / timedelta(hours=1)) for how, wait in waits.items()} == {"raise": 2, "retry": 1, "snooze": 1}
    assert (ended["snooze"].attempts, await (await service.open()).workers()) == ((), [])


@pytest.mark.parametrize("where", ["database", "service"])
@pytest.mark.parametrize("reason", ["", "no need", "x" * 300, "Gone: the order", "y" * 3000])
async def test_the_reason_of_a_cancel_is_kept_as_it_is(service: Demora, app: Demora, where: str, reason: str) -> None:
    """An error of a job has at most 2000 characters."""
    worker = service if where == "database" else app

    @worker.job("give.up")
    async def give_up() -> None:
        raise Cancel(reason)

    async with worker.worker():
        ended = await service.wait((await service.enqueue("give.up")).id, "60s")
    assert (ended.status, ended.error) == (Status.CANCELLED, reason[:2000])


@pytest.mark.parametrize("where", ["database", "service"])
@pytest.mark.parametrize("how", ["retry", "snooze"])
async def test_a_delay_of_zero_is_a_delay(service: Demora, app: Demora, where: str, how: str) -> None:
    """Such a retry does not wait for the backoff, and such a snooze is no hand-back: the job is due anew."""
    worker = service if where == "database" else app
    runs = 0

    @worker.job("again")
    async def again() -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise Retry("once more", after="0s") if how == "retry" else Snooze("0s")
        return runs

    async with worker.worker():
        added = await service.enqueue("again", retry_delay="2h")
        ended = await service.wait(added.id, "60s")
    assert (ended.status, ended.result) == (Status.COMPLETED, 2)
    assert [attempt.error for attempt in ended.attempts] == (["Retry: once more", None] if how == "retry" else [None])
    assert (added.lane, ended.lane) == (Lane.REALTIME, Lane.RETRY)


async def test_jobs_start_at_once_and_no_more_than_there_are_slots(service: Demora, app: Demora) -> None:
    running, most, go_on = 0, 0, asyncio.Event()

    @app.job("hold")
    async def hold() -> None:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await go_on.wait()
        running -= 1

    async with app.worker(concurrency=3):
        jobs = await service.enqueue_many([("hold", None)] * 8)
        await eventually(_answer(lambda: running), lambda count: count == 3)
        go_on.set()
        for job in jobs:
            assert (await service.wait(job.id, "60s")).status is Status.COMPLETED
    assert most == 3


async def test_a_cancel_ends_a_run(service: Demora, app: Demora) -> None:
    @app.job("rest")
    async def rest() -> None:
        await asyncio.sleep(600)

    async with app.worker():
        job = await service.enqueue("rest")
        await eventually(lambda: service.get(job.id), lambda job: job.status is Status.PROCESSING)
        await service.cancel(job.id)
        assert (await service.wait(job.id, "60s")).status is Status.CANCELLED


async def test_a_worker_that_stops_hands_back_its_jobs_and_leaves(service: Demora, app: Demora) -> None:
    @app.job("rest")
    async def rest() -> None:
        await asyncio.sleep(600)

    async with app.worker(grace="100ms"):
        job = await service.enqueue("rest")
        await eventually(lambda: service.get(job.id), lambda job: job.status is Status.PROCESSING)
    back = await service.get(job.id)
    assert (back.status, back.attempt) == (Status.QUEUED, 0)
    assert await (await service.open()).workers() == []


@pytest.mark.slow
async def test_a_worker_that_the_service_forgot_registers_again(service: Demora, app: Demora) -> None:
    @app.job("double")
    async def double(n: int) -> int:
        return 2 * n

    async with app.worker():
        assert (await service.wait((await service.enqueue("double", {"n": 1})).id, "60s")).result == 2
        client = await service.open()
        [known] = await client.workers()
        await client.store.retire(known.id)
        client.remote_workers._known.clear()
        assert (await service.wait((await service.enqueue("double", {"n": 2})).id, "60s")).result == 4


async def test_a_lost_answer_burns_no_attempt(service: Demora, url: str) -> None:
    async with before(f"{url}/") as (proxy, through), Demora(through) as app:

        @app.job("double")
        async def double(n: int) -> int:
            return 2 * n

        async with app.worker():
            await service.wait((await service.enqueue("double", {"n": 1})).id, "60s")
            for n in range(1, 6):
                proxy.cut_at(n)
                ended = await service.wait((await service.enqueue("double", {"n": n})).id, "60s")
                assert (ended.result, len(ended.attempts)) == (2 * n, 1)


@pytest.mark.slow
async def test_it_keeps_every_promise_of_the_kit(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    program = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, ''); from demora.cli import main; main()"
    command = [sys.executable, "-c", program, "worker", "--url", "{url}", "--app", "shop:app"]
    async with kit_service(tmp_path, LEASE) as url:
        code, said = await verdict(url, command)
    assert said[-1] == ALL_KEPT, "\n".join(said)
    assert code == 0


async def _settled(service: Demora, id: str) -> None:
    await eventually(lambda: service.get(id), lambda job: job.token == 1 and job.status is not Status.PROCESSING)


def _answer(look):  # type: ignore[no-untyped-def]
    async def answer() -> int:
        count: int = look()
        return count

    return answer
