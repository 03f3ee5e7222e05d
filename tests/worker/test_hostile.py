"""Handlers that do what no handler should: the worker, its slots and the other jobs survive them."""

import asyncio
import threading
from datetime import timedelta
from typing import NoReturn

import pytest

from demora import Cancel, Context, Demora, Fail, Retry, Snooze, Status
from demora.core import verdict
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreError
from demora.store.jobs import LeaseStatus
from demora.system import notices
from demora.worker import Worker
from demora.worker.run import Ending
from tests.facts import eventually
from tests.worker.conftest import Gate, ended


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the log from pytest, which cannot pass a text that is no UTF-8 between processes."""
    monkeypatch.setattr(notices.log, "disabled", True)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Untraceable(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise LookupError("no notes")


class Escaping(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class Namelessness(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(3)


class Nameless(Exception, metaclass=Namelessness):
    pass


class Soon(Snooze):
    def __init__(self) -> None:
        self.delay = "soon"  # type: ignore[assignment]


class Later(Retry):
    def __init__(self) -> None:
        self.after, self.detail = 5, None  # type: ignore[assignment]


class Beyond(BaseException):
    """What gevent and others raise."""


def raising(problem: BaseException) -> NoReturn:
    raise problem


HOSTILE = {
    "an error without words": Unspeakable(),
    "an error without a traceback": Untraceable("none"),
    "an error whose words are an exit": Escaping(),
    "an error whose class has no name": Nameless(),
    "a snooze without a span": Soon(),
    "a retry without a span": Later(),
    "a detail that is no text": Fail("no", detail={"a": 1}),
    "a detail without words": Fail("no", detail=Escaping()),
    "a reason without words": Fail(Escaping()),  # type: ignore[arg-type]
    "an error beyond exceptions": Beyond("far out"),
    "an exit": SystemExit(3),
    "the end of an iteration": StopIteration(),
    "a lone surrogate": ValueError("\ud800\0"),
    "its own cancellation": asyncio.CancelledError(),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_whatever_a_handler_raises_its_slot_is_free_again(app: Demora, name: str, plain: bool) -> None:
    problem = HOSTILE[name]

    async def bad() -> None:
        raising(problem)

    app.job("bad", max_retries=0)((lambda: raising(problem)) if plain else bad)
    async with app.worker(concurrency=1):
        found = await ended(app, await app.enqueue("bad"))
        assert (await ended(app, await app.enqueue("demo.echo"))).status is Status.COMPLETED
    assert found.status is Status.FAILED
    assert found.error


async def test_a_detail_that_is_no_text_is_kept_as_text(app: Demora) -> None:
    @app.job("bad")
    async def bad() -> None:
        raise Fail("no", detail={"a": 1})

    async with app.worker():
        [attempt] = (await ended(app, await bad.enqueue())).attempts
    assert (attempt.error, attempt.traceback) == ("Fail: no", "{'a': 1}")


async def test_a_cancel_without_words_is_a_cancel(app: Demora) -> None:
    @app.job("bad")
    async def bad() -> None:
        raise Cancel(Escaping())  # type: ignore[arg-type]

    async with app.worker():
        assert (await ended(app, await bad.enqueue())).status is Status.CANCELLED


async def test_an_outcome_that_cannot_be_decided_on_is_a_failed_attempt(
    app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undecided(*_: object, **__: object) -> NoReturn:
        raise OverflowError("as a bug would")

    monkeypatch.setattr(verdict, "backoff", undecided)

    @app.job("bad", max_retries=1, retry_delay="1ms")
    async def bad() -> None:
        raise LookupError("no")

    async with app.worker(concurrency=1):
        found = await ended(app, await bad.enqueue())
    assert [attempt.error for attempt in found.attempts] == ["OverflowError: as a bug would", "LookupError: no"]


async def test_a_keyboard_interrupt_in_a_thread_fails_its_job_alone(app: Demora) -> None:
    app.job("bad", max_retries=0)(lambda: raising(KeyboardInterrupt()))
    async with app.worker(concurrency=1):
        assert (await ended(app, await app.enqueue("bad"))).status is Status.FAILED


async def test_a_text_that_cannot_be_stored_costs_no_other_job(app: Demora) -> None:
    @app.job("bad")
    async def bad() -> None:
        raise Cancel("\ud800")

    jobs = await app.enqueue_many([("demo.echo", {}), ("bad", {}), ("demo.echo", {})])
    async with app.worker():
        found = [(await ended(app, job)).status for job in jobs]
    assert found == [Status.COMPLETED, Status.CANCELLED, Status.COMPLETED]


async def test_a_settlement_that_cannot_be_recorded_costs_no_other(app: Demora) -> None:
    jobs = await app.enqueue_many([("demo.echo", {"n": n}) for n in range(3)])
    store = (await app.open()).store
    (await app.open()).store = Refusing(store, jobs[1].id)  # type: ignore[assignment]
    async with app.worker():
        await eventually(lambda: store.get(jobs[2].id), lambda job: job is not None and job.status.ended)
    assert [(await store.get(job.id)).status for job in jobs] == [  # type: ignore[union-attr]
        Status.COMPLETED,
        Status.PROCESSING,
        Status.COMPLETED,
    ]


class Refusing:
    """A store that cannot record the end of one job."""

    def __init__(self, store: SqliteStore, id: str) -> None:
        self._store, self._id = store, id

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def settle(self, settlements: list[object]) -> object:
        if any(settlement.report.lease.id == self._id for settlement in settlements):  # type: ignore[attr-defined]
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "as a bug would")
        return await self._store.settle(settlements)  # type: ignore[arg-type]


async def test_a_cancel_heard_before_the_first_step_ends_the_run(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Worker._start

    def start_and_end(self: Worker, *claimed: object) -> None:
        begin(self, *claimed)  # type: ignore[arg-type]
        for run in self._runs.values():
            run.end(Ending.CANCEL)

    monkeypatch.setattr(Worker, "_start", start_and_end)
    async with app.worker(concurrency=1):
        assert (await ended(app, await app.enqueue("demo.echo"))).status is Status.CANCELLED


async def test_news_of_an_earlier_lease_leaves_the_next_run_alone(app: Demora, gate: Gate) -> None:
    @app.job("again")
    async def again(ctx: Context) -> str:
        if ctx.job.lease.token == 1:
            raise Snooze("0s")
        await gate.arrive()
        return "ok"

    async with app.worker() as working:
        job = await again.enqueue()
        await gate.reached()
        [lease] = working._runs
        earlier = type(lease)(lease.id, 1)
        working._apply_lease_status(LeaseStatus(lost=frozenset({earlier}), cancel_requested=frozenset({earlier})))
        gate.open()
        assert (await ended(app, job)).status is Status.COMPLETED


async def test_many_snoozes_of_no_time_lose_no_run(app: Demora) -> None:
    @app.job("restless")
    async def restless(ctx: Context) -> None:
        if ctx.job.lease.token < 30:
            await asyncio.sleep(0.01)
            raise Snooze("0s")

    async with app.worker(lease=timedelta(seconds=2)):
        for job in await app.enqueue_many([("restless", {})] * 30):
            found = await ended(app, job)
            assert (found.status, found.attempt) == (Status.COMPLETED, 1)


async def test_cancelling_a_worker_hands_back_what_it_ran(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> None:
        await gate.arrive()

    running = asyncio.ensure_future(Worker(app, grace=timedelta(0)).run())
    job = await long.enqueue()
    await gate.reached()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (await app.get(job.id)).status is Status.QUEUED


async def test_an_ordinary_stop_is_no_failure_however_many_threads_go_on(app: Demora) -> None:
    started, let_go = threading.Event(), threading.Event()

    @app.job("plain")
    def plain() -> None:
        started.set()
        let_go.wait(60)

    running = Worker(app, concurrency=1, grace=timedelta(0))
    done = asyncio.ensure_future(running.run())
    await plain.enqueue()
    await asyncio.to_thread(started.wait, 60)
    running.stop()
    assert await done == 0
    let_go.set()


async def test_a_worker_whose_store_was_closed_stops(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long() -> None:
        await gate.arrive()

    worker = Worker(app, grace=timedelta(0))
    running = asyncio.ensure_future(worker.run())
    await long.enqueue()
    await gate.reached()
    await app.close()
    worker.stop()
    async with asyncio.timeout(60):
        await running


async def test_a_worker_without_its_keeper_stops_and_says_so(
    app: Demora, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_sibling(self: SqliteStore) -> "Broken":
        return Broken()

    monkeypatch.setattr(SqliteStore, "sibling", no_sibling)
    monkeypatch.setattr(notices.log, "disabled", False)
    async with asyncio.timeout(60):
        assert await Worker(app).run() == 1
    assert "renewing leases has failed for good, the worker stops: RuntimeError('a bug')" in caplog.text


class Broken:
    """A store that cannot be opened, for a reason that no retry will mend."""

    async def open(self) -> None:
        raise RuntimeError("a bug")


async def test_a_keeper_goes_on_when_its_connection_can_be_opened(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    real = SqliteStore.open

    async def open_third_time(self: SqliteStore) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise StoreError("the disk is away")
        await real(self)

    monkeypatch.setattr(SqliteStore, "open", open_third_time)
    async with app.worker(lease=timedelta(seconds=1)):
        assert (await ended(app, await app.enqueue("demo.sleep", {"seconds": 2.5}))).token == 1
    assert len(tries) == 3


def test_an_app_can_be_used_from_one_loop_after_another(tmp_path: object) -> None:
    app = Demora(f"sqlite:///{tmp_path}/jobs.db")

    async def add() -> None:
        await app.enqueue("demo.echo")

    for _ in range(3):
        asyncio.run(add())

    async def count() -> int:
        async with app:
            return len((await app.find()).jobs)

    assert asyncio.run(count()) == 3
