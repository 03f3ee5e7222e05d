"""A decorated function: what it refuses, and the type of its results."""

import copy
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from demora import Demora
from demora.errors import BadHandler, Invalid
from demora.handlers.job_function import JobFunction


@dataclass
class Receipt:
    cents: int
    at: datetime


@pytest.fixture
async def app() -> AsyncIterator[Demora]:
    async with Demora("sqlite://") as app, app.worker():
        yield app


async def test_a_result_has_the_type_that_the_handler_returns(app: Demora) -> None:
    receipt = Receipt(5, datetime(2030, 1, 1, tzinfo=UTC))

    @app.job("charge")
    async def charge() -> Receipt:
        return receipt

    job = await charge.enqueue()
    assert await app.result(job, "60s") == receipt
    assert await app.result(job.id) == {"cents": 5, "at": "2030-01-01T00:00:00Z"}


async def test_a_result_that_does_not_fit_its_annotation_is_as_json_has_it(app: Demora) -> None:
    @app.job("count")
    def count() -> int:
        return "many"  # type: ignore[return-value]

    assert await app.result(await count.enqueue(), "60s") == "many"


async def test_the_job_itself_can_be_waited_for(app: Demora) -> None:
    job = await app.enqueue("demo.echo", {"hi": 1})
    assert (await app.wait(job, "60s")).result == {"hi": 1}
    assert await app.result(job) == {"hi": 1}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("retries", "did you mean max_retries?"),
        ("time_out", "did you mean timeout?"),
        ("colour", "@app.job"),
    ],
)
def test_an_option_that_does_not_exist_is_named_with_the_nearest_one(option: str, words: str) -> None:
    options: Any = {option: 3}
    with pytest.raises(BadHandler, match=f"{option} is not an option of @app.job") as refused:
        Demora("sqlite://").job("x", **options)
    assert str(refused.value).endswith(words)


async def test_an_option_of_enqueue_that_does_not_exist_is_named_with_the_nearest_one(app: Demora) -> None:
    options: Any = {"dellay": "1h"}
    with pytest.raises(Invalid) as refused:
        await app.enqueue("demo.echo", **options)
    assert str(refused.value) == "dellay: is not an option of a job; did you mean delay?"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("countdown", 'write delay="60s"'),
        ("_defer_by", 'write delay="60s"'),
        ("eta", "write at=datetime(…, tzinfo=UTC)"),
        ("args", 'write the payload as a dict, enqueue("type", {"to": …}), or send.enqueue(to=…)'),
        ("to", 'if it is a field of the payload, put it into the dict: enqueue("type", {"field": …})'),
    ],
)
async def test_an_option_of_another_queue_is_answered_with_demoras_own(app: Demora, option: str, words: str) -> None:
    options: Any = {option: 60}
    with pytest.raises(Invalid) as refused:
        await app.enqueue("demo.echo", **options)
    assert str(refused.value) == f"{option}: is not an option of a job; {words}"


@pytest.mark.parametrize(
    ("option", "words"), [("throws", "write permanent=(ValueError,)"), ("bind", "write a parameter ctx: Context")]
)
def test_an_option_of_another_queues_decorator_is_answered_with_demoras_own(option: str, words: str) -> None:
    options: Any = {option: True}
    with pytest.raises(BadHandler, match=f"{option} is not an option of @app.job; {re.escape(words)}$"):
        Demora("sqlite://").job("x", **options)


@pytest.mark.parametrize(("option", "ours"), [("delay", "delay=…"), ("countdown", 'delay="60s"')])
async def test_an_option_among_the_fields_of_a_payload_is_answered_with_where_it_belongs(
    app: Demora, option: str, ours: str
) -> None:
    @app.job("mail.send")
    def send_mail(to: str) -> None: ...

    payload: Any = {"to": "a@b.c", option: "60s"}
    with pytest.raises(Invalid) as refused:
        await send_mail.enqueue(**payload)
    words = f"is not a known field; known: to; for the option write .options({ours}).enqueue(…)"
    assert str(refused.value) == f"payload.{option}: {words}"


async def test_a_job_function_in_the_place_of_its_type_is_answered_with_its_own_verb(app: Demora) -> None:
    @app.job("mail.send")
    def send_mail(to: str) -> None: ...

    enqueue: Any = app.enqueue
    with pytest.raises(Invalid) as refused:
        await enqueue(send_mail, to="a@b.c")
    words = "to enqueue a job of a function, write function.enqueue(…) with its arguments by name"
    assert str(refused.value) == f"type: a type is text, such as 'email.send'; {words}"


def saving(name: str) -> None: ...


ENQUEUE = "await saving.enqueue(…), or saving.enqueue_blocking(…) without an event loop"
LATER = 'await saving.options(delay="60s").enqueue(…), or .options(at=datetime(…, tzinfo=UTC)) for a given time'


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("delay", f"; write {ENQUEUE}"),
        ("send", f"; write {ENQUEUE}"),
        ("apply_async", f"; write {LATER}"),
        ("send_with_options", f"; write {LATER}"),
        ("colour", ""),
    ],
)
def test_a_verb_of_another_queue_is_answered_with_demoras_own(verb: str, words: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(Demora("sqlite://").job("x")(saving), verb)
    assert str(refused.value) == f"'JobFunction' object has no attribute '{verb}'{words}"
    assert refused.value.name == verb


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("task", '; write @app.job("type")'),
        ("periodic_task", '; write @app.every("0 3 * * *") above @app.job("type")'),
        ("add_periodic_task", '; write app.schedule("nightly", "type", cron="0 3 * * *")'),
        (
            "send_task",
            '; write await app.enqueue("type", {…}), with delay="60s" or at=datetime(…, tzinfo=UTC) if it is to run later',
        ),
        ("colour", ""),
    ],
)
def test_a_verb_of_another_queues_application_is_answered_with_demoras_own(verb: str, words: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(Demora("sqlite://"), verb)
    assert str(refused.value) == f"'Demora' object has no attribute '{verb}'{words}"


def test_a_job_function_has_only_its_own_verbs_and_can_be_copied_and_inspected() -> None:
    function = Demora("sqlite://").job("x")(saving)
    assert not hasattr(function, "delay")
    copied = copy.copy(function)
    assert (copied.type, inspect.signature(copied), inspect.unwrap(copied)) == (
        "x",
        inspect.signature(saving),
        saving,
    )
    assert not hasattr(JobFunction.__new__(JobFunction), "delay")  # as pickle and copy make one, before its attributes


class Connection: ...


@dataclass
class Order:
    by: Connection


def save(file: Path) -> None: ...


def send(connections: list[Connection]) -> None: ...


def charge(order: Order | None) -> None: ...


def mix(value: str | bytes) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (save, "parameter 'file': no JSON value is a Path; a payload is JSON: use builtins"),
        (send, "parameter 'connections': no JSON value is a Connection"),
        (charge, "parameter 'order': no JSON value is a Connection"),
        (mix, "parameter 'value': Type unions may not contain more than one str-like type"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_an_annotation_that_no_payload_fits_is_refused_at_registration(function: Callable[..., None], words: str) -> None:
    with pytest.raises(BadHandler, match=f"^handler for 'x': {words}"):
        Demora("sqlite://").job("x")(function)


@dataclass
class Tree:
    children: "list[Tree]"
    parents: Iterable[str]


async def test_a_payload_may_contain_itself_and_a_parameter_that_has_a_default_may_be_of_any_class(app: Demora) -> None:
    @app.job("grow")
    def grow(tree: Tree, anything: object, connection: Connection | None = None) -> int:
        return len(tree.children) + (connection is not None)

    job = await grow.enqueue(tree=Tree([Tree([], [])], ["a"]), anything=[1])
    assert await app.result(job, "60s") == 1


@pytest.mark.parametrize(
    ("payload", "words"), [({"subjct": "x"}, "did you mean subject?"), ({"zzz": "x"}, "known: to, subject")]
)
async def test_a_field_that_the_handler_does_not_have_is_named_with_those_it_has(
    app: Demora, payload: dict[str, str], words: str
) -> None:
    @app.job("email.send")
    def send_email(to: str, subject: str = "") -> None: ...

    with pytest.raises(Invalid, match="is not a known field") as refused:
        await app.enqueue("email.send", {"to": "x", **payload})
    assert refused.value.reason.endswith(words)
    assert repr(send_email).startswith("<JobFunction email.send: test_a_field")
