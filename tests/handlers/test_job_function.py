"""A decorated function: what it refuses, and the type of its results."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from demora import Demora
from demora.errors import BadHandler, Invalid


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
