"""`client.make_many`: each request of a call is checked as if it came alone."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest

from demora import Demora
from demora.client.client import Client
from demora.errors import Invalid, TooLarge


@pytest.fixture
async def client() -> Client:
    app = Demora("sqlite://")

    @app.job("mail.send", queue="mail", max_retries=7)
    async def send(to: Annotated[str, msgspec.Meta(min_length=1)]) -> None: ...

    return await app.open()


TAGS = ["vip"]
REQUESTS: list[Any] = [
    ("mail.send", {"to": "a"}),
    ("mail.send", {"to": "b"}),
    ("mail.send", {"to": "c"}, {"delay": "1h", "tags": TAGS}),
    ("mail.send", {"to": "d"}, {"delay": "1h", "tags": TAGS}),
    ("mail.send", {"to": "d"}, {"tags": TAGS, "delay": "1h"}),
    ("mail.send", {"to": "e"}, {"delay": "2h", "tags": TAGS}),
    {"type": "mail.send", "payload": {"to": "f"}, "delay": "2h", "tags": TAGS},
    {"type": "demo.echo"},
    {"type": "demo.echo", "priority": "HIGH"},
    ("demo.echo", None),
    ("demo.echo", {"x": 1}, {"key": "k"}),
    ("demo.echo", {"x": 2}, {"key": "k"}),
    ("demo.echo", {"x": 1}, {"unique": "type+payload"}),
    ("demo.echo", {"x": 2}, {"unique": "type+payload"}),
    *(("demo.echo", {"n": n}, {"delay": timedelta(seconds=5), "tags": ["vip"]}) for n in range(2)),
    ("demo.echo", {}, {"delay": timedelta(seconds=5), "tags": ("vip",)}),
    ("demo.echo", {}, {"delay": timedelta(seconds=6), "tags": ("vip",)}),
]


async def test_jobs_of_one_call_are_those_of_single_calls(client: Client) -> None:
    together, alone = client.make_many(REQUESTS), [client.make_many([request])[0] for request in REQUESTS]
    assert [msgspec.structs.replace(job, id="") for job in together] == [
        msgspec.structs.replace(job, id="") for job in alone
    ]
    assert len({job.id for job in together}) == len(REQUESTS)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (("mail.send", {"to": ""}), "jobs[1].payload"),
        (("mail.send", {"to": "x", "cc": "y"}), "jobs[1].payload"),
        (("mail.send", {"to": float("nan")}), "jobs[1].payload"),
        (("mail.send", ["a"]), "jobs[1].payload"),
        (("mail.send", {"to": "a"}, {"max_retries": True}), "jobs[1].max_retries"),
        (("mail.send", {"to": "a"}, {"retries": 1}), "jobs[1].retries"),
    ],
)
async def test_a_bad_request_after_a_good_one_is_refused(client: Client, bad: Any, field: str) -> None:
    good = ("mail.send", {"to": "a"}, {"max_retries": 1}) if len(bad) == 3 else ("mail.send", {"to": "a"})
    with pytest.raises(Invalid) as refused:
        client.make_many([good, bad])
    assert refused.value.field.startswith(field)


async def test_a_payload_that_is_too_large_is_refused_after_a_small_one(client: Client) -> None:
    with pytest.raises(TooLarge, match=r"jobs\[1\]"):
        client.make_many([("demo.echo", {}), ("demo.echo", {"x": "x" * 2**20})])
