"""Payloads and results that are annotated with pydantic's models and constraints."""

import dataclasses
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any

import annotated_types
import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, PositiveInt, field_validator
from typing_extensions import TypedDict

from demora import Demora, Status
from demora.errors import BadHandler, Invalid


class Spec(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pages: Annotated[int, Field(gt=0, alias="pageCount")]
    home: HttpUrl | None = None


@dataclasses.dataclass
class Order:
    specs: list[Spec]


@pydantic.dataclasses.dataclass
class Box:
    grams: PositiveInt


class Parcel(TypedDict):
    box: Box


@pytest.fixture
async def app() -> AsyncIterator[Demora]:
    async with Demora("sqlite://") as app, app.worker():
        yield app


async def test_a_model_is_an_argument_and_a_result(app: Demora) -> None:
    @app.job("report")
    async def report(spec: Spec) -> Spec:
        assert isinstance(spec, Spec)
        return spec

    spec = Spec(pageCount=3, home=HttpUrl("https://a.b/"))
    job = await report.enqueue(spec=spec)
    assert job.payload == {"spec": {"pageCount": 3, "home": "https://a.b/"}}
    assert await app.result(job, "60s") == spec
    assert await app.result(job.id) == {"pageCount": 3, "home": "https://a.b/"}


@pytest.mark.parametrize("hint", [Spec, Spec | int, list[Spec], dict[str, Spec], Order, Box, Parcel, PositiveInt, HttpUrl])
async def test_an_annotation_of_pydantic_is_one_wherever_it_stands(app: Demora, hint: Any) -> None:
    async def handle(value: Any) -> None: ...

    handle.__annotations__["value"] = hint
    app.job("handle")(handle)
    with pytest.raises(Invalid, match=r"^payload\.value"):
        await app.enqueue("handle", {"value": -1.5})


async def test_pydantic_checks_all_fields_if_it_must_check_one(app: Demora) -> None:
    @app.job("count")
    def count(n: Annotated[int, Field(gt=0)], day: int, at: list[int] = []) -> list[int]:  # noqa: B006
        at.append(n + day)
        return at

    with pytest.raises(Invalid, match=r"^payload\.n: Input should be greater than 0$"):
        await count.enqueue(n=0, day=1)
    for _ in range(2):  # a default is not shared by two runs
        assert await app.result(await app.enqueue("count", {"n": 1, "day": "2"}), "60s") == [3]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({}, "payload.order: is required"),
        ({"order": {"specs": []}, "ordr": 1}, "payload.ordr: is not a known field; did you mean order?"),
        ({"order": {"specs": [{"pageCount": 1}, {"pageCount": 0}]}}, "payload.order.specs[1].pageCount: Input should be "),
        (
            {"order": {"specs": [{"pageCount": 1, "x" * 500: 0}]}},
            f"payload.order.specs[0].{'x' * 100}: is not a ",
        ),
        ({"order": "my secret"}, "payload.order: Input should be "),
    ],
)
async def test_an_error_names_the_field_and_repeats_no_value(app: Demora, payload: Any, said: str) -> None:
    @app.job("order")
    async def place(order: Order) -> None: ...

    with pytest.raises(Invalid) as refused:
        await app.enqueue("order", payload)
    assert str(refused.value).startswith(said)
    assert "secret" not in str(refused.value)


async def test_an_open_handler_gets_the_fields_that_it_does_not_declare(app: Demora) -> None:
    @app.job("open")
    async def handle(n: PositiveInt, **more: Any) -> dict[str, Any]:
        return {"n": n, **more}

    assert await app.result(await handle.enqueue(n=1, m=[2]), "60s") == {"n": 1, "m": [2]}


async def test_a_stored_payload_that_no_longer_fits_fails_for_good(app: Demora) -> None:
    job = await app.enqueue("grow", {"n": -1}, delay="1h")

    @app.job("grow")
    async def grow(n: PositiveInt) -> None: ...

    await app.reschedule(job.id, delay="0s")
    ended = await app.wait(job, "60s")
    assert (ended.status, ended.error) == (Status.FAILED, "Invalid: payload.n: Input should be greater than 0")
    assert len(ended.attempts) == 1


async def test_a_validator_of_the_user_refuses_a_payload(app: Demora) -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def is_even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("must be even")
            return n

    async def halve(even: Even) -> int:
        return even.n // 2

    halve.__annotations__["even"] = Even
    app.job("halve")(halve)
    with pytest.raises(Invalid, match=r"^payload\.even\.n: Value error, must be even$"):
        await app.enqueue("halve", {"even": {"n": 3}})


class Connection: ...


class Row(msgspec.Struct):
    n: int


@pytest.mark.parametrize(("hint", "named"), [(Connection, "Connection"), (Row, "Row")])
def test_a_type_that_pydantic_cannot_read_is_refused(hint: Any, named: str) -> None:
    def handle(n: PositiveInt, other: Any) -> None: ...

    handle.__annotations__["other"] = hint
    with pytest.raises(BadHandler, match=named):
        Demora("sqlite://").job("handle")(handle)


def test_a_field_as_a_default_is_refused_with_the_way_to_write_it() -> None:
    def handle(n: int = Field(gt=0)) -> None: ...

    with pytest.raises(BadHandler, match=r"write n: Annotated\[…, Field\(…\)\]"):
        Demora("sqlite://").job("handle")(handle)


async def test_constraints_alone_are_checked_too(app: Demora) -> None:
    @app.job("near")
    async def near(n: Annotated[int, annotated_types.Lt(5)]) -> None: ...

    with pytest.raises(Invalid, match="less than 5"):
        await near.enqueue(n=5)


async def test_a_value_that_is_no_model_is_refused_as_before(app: Demora) -> None:
    with pytest.raises(Invalid, match="cannot be written as JSON: Encoding objects of type Connection is unsupported"):
        await app.enqueue("demo.echo", {"x": Connection()})


@pytest.mark.slow
def test_demora_imports_no_pydantic_by_itself() -> None:
    program = (
        "import sys\n"
        "from typing import Annotated\n"
        "from demora import Demora\n"
        "app = Demora('sqlite://')\n"
        "@app.job('x')\n"
        "def handle(n: Annotated[int, 'positive']) -> int: ...\n"
        "assert not {'pydantic', 'pydantic_core'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
