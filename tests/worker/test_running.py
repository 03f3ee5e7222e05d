"""Handlers of every kind are run, with their arguments, their context and what surrounds them."""

import asyncio
import dataclasses
import itertools
import logging
import threading
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from demora import Context, Demora, Status, current_run
from demora.errors import BadHandler, Invalid, UnknownJobType
from demora.store.jobs import Claimed
from demora.worker import Worker
from tests.facts import eventually
from tests.worker.conftest import Gate, ended


@dataclasses.dataclass
class Address:
    street: str
    number: int = 1


class Item(msgspec.Struct):
    name: str


async def test_an_async_function_runs_on_the_loop_with_its_payload_as_arguments(app: Demora) -> None:
    @app.job("mail")
    async def mail(to: str, copies: int = 2) -> dict[str, object]:
        return {"to": to, "copies": copies, "thread": threading.current_thread() is threading.main_thread()}

    async with app.worker():
        job = await mail.enqueue(to="a@b.c")
        assert await app.result(job.id, "60s") == {"to": "a@b.c", "copies": 2, "thread": True}


async def test_a_plain_function_runs_in_a_thread(app: Demora) -> None:
    @app.job("sum")
    def add_up(numbers: list[int]) -> object:
        return [sum(numbers), threading.current_thread() is threading.main_thread(), current_run() is not None]

    async with app.worker():
        assert await app.result((await add_up.enqueue(numbers=[1, 2, 3])).id, "60s") == [6, False, True]


async def test_arguments_may_be_dataclasses_and_structs(app: Demora) -> None:
    @app.job("parcel")
    async def parcel(to: Address, items: list[Item]) -> object:
        return [type(to).__name__, to.number, [item.name for item in items]]

    async with app.worker():
        job = await parcel.enqueue(to=Address("Elm"), items=[Item("tea")])
        assert await app.result(job.id, "60s") == ["Address", 1, ["tea"]]


async def test_a_payload_that_does_not_fit_is_refused_where_the_handler_is_known(app: Demora) -> None:
    @app.job("mail")
    async def mail(to: str) -> None: ...

    with pytest.raises(Invalid, match=r"payload\.to: Expected `str`, got `int`"):
        await mail.enqueue(to=7)
    with pytest.raises(Invalid, match=r"payload\.to: is required"):
        await app.enqueue("mail", {})
    assert (await app.find()).jobs == []


async def test_a_payload_without_names_is_refused_with_the_names(app: Demora) -> None:
    @app.job("mail")
    async def mail(ctx: Context, to: str, copies: int = 2) -> None: ...

    unnamed: Any = "a@b.c"
    with pytest.raises(Invalid, match=r"payload: must be given by name: enqueue\(to=…, copies=…\)"):
        await mail.enqueue(unnamed)
    with pytest.raises(Invalid, match=r"make\(to=…, copies=…\)"):
        mail.make(unnamed)
    with pytest.raises(Invalid, match=r"enqueue_blocking\(to=…, copies=…\)"):
        await asyncio.to_thread(mail.enqueue_blocking, unnamed)


async def test_a_payload_may_have_any_names(app: Demora) -> None:
    @app.job("any")
    async def takes_any(**fields: Any) -> None: ...

    assert (await takes_any.enqueue(self=1, unnamed=2)).payload == {"self": 1, "unnamed": 2}


async def test_a_payload_that_does_not_fit_fails_the_job_without_retries(app: Demora, tmp_path: object) -> None:
    job = await app.enqueue("mail", {"to": 7})

    @app.job("mail")
    async def mail(to: str) -> None: ...

    async with app.worker():
        found = await ended(app, job)
    assert (found.status, found.retry_count) == (Status.FAILED, 0)
    assert "payload.to" in (found.error or "")


async def test_a_result_that_is_not_json_fails_the_job_without_retries(app: Demora) -> None:
    @app.job("odd")
    async def odd() -> object:
        return float("nan")

    async with app.worker():
        found = await ended(app, await odd.enqueue())
    assert (found.status, found.retry_count) == (Status.FAILED, 0)


async def test_defaults_of_a_type_apply_where_its_handler_is_known(app: Demora) -> None:
    @app.job("mail", queue="post", priority="HIGH", max_retries=7, retry_delay="3s", timeout="5s")
    async def mail() -> None: ...

    job = await mail.enqueue()
    assert (job.queue, job.priority.name, job.max_retries, job.retry_delay) == ("post", "HIGH", 7, timedelta(seconds=3))
    other = await mail.options(queue="own", max_retries=0).enqueue()
    assert (other.queue, other.max_retries) == ("own", 0)


REFUSED: list[tuple[str, Any, str]] = [
    *(("max_retries", value, "must be a whole number from 0 to 1000") for value in (-1, 1001, "3", True, 1.5)),
    ("retry_delay", 5, "a span is a timedelta or text"),
    ("retry_delay", "400d", "at most 366d"),
    ("webhook_on_cancel", "yes", "must be true or false"),
    ("webhook_url", "no url", "URL"),
    ("queue", "no good", "a queue is named"),
    ("priority", "URGENT", "must be one of"),
    ("timeout", "0s", "greater than zero"),
    ("jitter", "half", "from 0 to 1"),
    ("process", "yes", "must be true or false"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_options_that_no_job_could_have_are_refused_when_a_handler_is_registered(name: str, value: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as refused:
        Demora().job("bad", **{name: value})(lambda: 1)
    assert refused.value.field == name


async def test_only_known_types_are_taken_if_so_set(app: Demora) -> None:
    app.registry.known_types_only = True
    with pytest.raises(UnknownJobType, match=r"demo\.echo"):
        await app.enqueue("nobody.knows")
    assert await app.enqueue("demo.echo")


def test_a_function_whose_arguments_have_no_names_is_refused() -> None:
    app = Demora()
    with pytest.raises(BadHandler, match="keyword"):
        app.job("bad")(lambda *numbers: None)


def test_a_decorator_without_a_type_is_refused() -> None:
    app = Demora()
    with pytest.raises(BadHandler, match=r"write @app\.job\(\"mail\"\)"):

        @app.job  # type: ignore[arg-type]
        def mail(to: str) -> None: ...


def test_two_functions_for_one_type_are_refused() -> None:
    app = Demora()
    app.job("one")(lambda: 1)
    with pytest.raises(BadHandler, match="already"):
        app.job("one")(lambda: 2)


def test_permanent_errors_are_exception_classes_or_one_alone() -> None:
    app = Demora()
    assert app.job("one", permanent=KeyError)(lambda: 1).handler.defaults.permanent == (KeyError,)
    assert app.job("two", permanent=[KeyError, OSError])(lambda: 1).handler.defaults.permanent == (KeyError, OSError)
    for wrong in (("ValueError",), "ValueError", (int,), (KeyError("gone"),), None, {KeyError}):
        with pytest.raises(BadHandler, match=r"handler for 'bad': permanent takes exception classes"):
            app.job("bad", permanent=wrong)(lambda: 1)


async def test_no_more_run_at_once_than_there_are_slots(app: Demora) -> None:
    running, most, seen = 0, 0, asyncio.Semaphore(0)

    @app.job("busy")
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        seen.release()

    await app.enqueue_many([("busy", {})] * 40)
    async with asyncio.timeout(60), app.worker(concurrency=3):
        for _ in range(40):
            await seen.acquire()
    assert most == 3


async def test_a_job_shows_its_progress_and_its_log_while_it_runs(app: Demora, gate: Gate) -> None:
    @app.job("long")
    async def long(ctx: Context) -> None:
        ctx.progress(0.4, "nearly half")
        ctx.log("a line")
        await gate.arrive()
        ctx.log("another")

    async with app.worker():
        id = (await long.enqueue()).id
        await gate.reached()
        shown = await eventually(lambda: app.get(id), lambda job: job.progress is not None)
        assert (shown.progress, shown.progress_message) == (0.4, "nearly half")
        assert [line.line for line in shown.log] == ["a line"]
        assert shown.status is Status.PROCESSING
        assert shown.started_at is not None
        gate.open()
        found = await ended(app, id)
    assert [line.line for line in found.log] == ["a line", "another"]


async def test_the_log_of_a_run_is_bounded(app: Demora) -> None:
    @app.job("chatty")
    async def chatty(ctx: Context) -> None:
        for n in range(1000):
            ctx.log(f"{n} " + "x" * 5000)

    async with app.worker():
        log = (await ended(app, await chatty.enqueue())).log
    assert len(log) == 201
    assert max(len(line.line) for line in log) == 1000


async def test_middleware_surrounds_each_run_outermost_first(app: Demora) -> None:
    calls = []

    @app.middleware
    async def outer(ctx: Context, call_next):  # type: ignore[no-untyped-def]
        calls.append("outer in")
        result = await call_next()
        calls.append("outer out")
        return {"wrapped": result}

    @app.middleware
    async def inner(ctx: Context, call_next):  # type: ignore[no-untyped-def]
        calls.append(f"inner {ctx.job.type}")
        return await call_next()

    async with app.worker():
        job = await app.enqueue("demo.echo", {"hi": 1})
        assert await app.result(job.id, "60s") == {"wrapped": {"hi": 1}}
    assert calls == ["outer in", "inner demo.echo", "outer out"]


async def test_hooks_are_called_when_a_worker_starts_and_stops(app: Demora) -> None:
    calls = []

    @app.on_startup
    async def start() -> None:
        calls.append("start")

    @app.on_shutdown
    def stop() -> None:
        calls.append("stop")

    async with app.worker():
        await app.result((await app.enqueue("demo.echo")).id, "60s")
        assert calls == ["start"]
    assert calls == ["start", "stop"]


async def test_a_hook_that_fails_keeps_a_worker_from_starting(app: Demora) -> None:
    @app.on_startup
    def start() -> None:
        raise LookupError("no such cache")

    with pytest.raises(LookupError, match="no such cache"):
        await Worker(app).run()


async def test_a_hook_that_fails_does_not_keep_a_worker_from_stopping(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    @app.on_shutdown
    async def first() -> None:
        raise LookupError("no such cache")

    @app.on_shutdown
    def second() -> None:
        calls.append("second")

    worker = Worker(app)
    worker.stop()
    assert await worker.run() == 0
    assert calls == ["second"]
    assert "shutdown hook failed: LookupError('no such cache')" in caplog.text


async def test_every_log_record_of_a_run_carries_the_id_of_its_job(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    @app.job("speaks")
    async def speaks() -> None:
        logging.getLogger("mine").warning("from the loop")

    @app.job("speaks.plain")
    def speaks_plain() -> None:
        logging.getLogger("mine").warning("from a thread")

    async with app.worker():
        ids = [(await speaks.enqueue()).id, (await speaks_plain.enqueue()).id]
        for id in ids:
            await app.result(id, "60s")
    stamped = {record.message: record.job_id for record in caplog.records if record.name == "mine"}
    assert stamped == {"from the loop": ids[0], "from a thread": ids[1]}


async def test_a_job_began_when_its_handler_did_not_when_it_was_claimed(app: Demora) -> None:
    @app.job("slow")
    async def slow() -> None:
        await asyncio.sleep(0.03)

    jobs = await app.enqueue_many([("slow", {})] * 4)
    async with app.worker(concurrency=1):
        found = [await ended(app, job) for job in jobs]
    for before, after in itertools.pairwise(found):
        assert before.completed_at is not None
        assert after.started_at is not None
        assert after.started_at >= before.completed_at - timedelta(milliseconds=5)


async def test_built_in_handlers_do_what_they_say(app: Demora) -> None:
    async with app.worker():
        echo = await app.enqueue("demo.echo", {"hi": [1, None, "ü"]})
        sleep = await app.enqueue("demo.sleep", {"seconds": 0.01})
        fail = await app.enqueue("demo.fail", {"any": 1}, max_retries=0)
        assert (await ended(app, echo)).result == {"hi": [1, None, "ü"]}
        assert (await ended(app, sleep)).status is Status.COMPLETED
        assert (await ended(app, fail)).status is Status.FAILED


async def test_what_was_claimed_starts_before_the_next_claim(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim may be over at once, so that nothing but the worker gives way to what the one before it brought."""
    store, seen = (await app.open()).store, list[str]()
    claim = store.claim

    async def claim_once(*asked: Any, **how: Any) -> Claimed:
        if "claimed" in seen:
            seen.append("asked again")
            return Claimed([], [], None)
        claimed = await claim(*asked, **how)
        seen.extend(["claimed"] * len(claimed.jobs))
        return msgspec.structs.replace(claimed, next_in=timedelta(0)) if claimed.jobs else claimed

    @app.job("mail")
    async def mail() -> None:
        seen.append("started")

    monkeypatch.setattr(store, "claim", claim_once)
    job = await mail.enqueue()
    async with app.worker():
        await ended(app, job)
    assert seen[:3] == ["claimed", "started", "asked again"]
