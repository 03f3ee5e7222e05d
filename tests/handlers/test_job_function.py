"""A decorated function: what it refuses, and the type of its results."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
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
