"""The budget of bytes: what counts, for how long, and that an answer is sent no faster than it is read."""

import asyncio
from typing import Any

import pytest

from demora.api.answers import CHUNK, Listing, Reply
from demora.api.budget import UNCOUNTED, Budget
from demora.wire.problems import Overloaded

MOST = 1_000_000


def test_a_request_counts_with_what_it_holds_beyond_the_first_bytes() -> None:
    budget = Budget(MOST)
    with budget.share() as share:
        share.body(UNCOUNTED)
        assert budget.held == 0
        share.body(UNCOUNTED + 500)
        share.answer(200)
        assert budget.held == 700
        share.answer(0)
        assert budget.held == 500
    assert budget.held == 0


def test_what_would_be_too_much_is_refused_and_small_requests_are_not() -> None:
    budget = Budget(MOST)
    with budget.share() as large:
        large.body(UNCOUNTED + MOST)
        with budget.share() as other, pytest.raises(Overloaded):
            other.body(UNCOUNTED + 1)
        with budget.share() as small:
            small.body(UNCOUNTED)
        with pytest.raises(Overloaded):
            large.answer(1)
        assert budget.held == MOST
    assert budget.held == 0


async def test_an_answer_is_counted_before_it_is_sent_and_sent_piece_by_piece() -> None:
    budget = Budget(10 * MOST)
    items = [{"text": "x" * 50_000} for _ in range(20)]
    sent: list[tuple[int, dict[str, Any]]] = []

    async def send(message: Any) -> None:
        sent.append((budget.held, message))

    with budget.share() as share:
        await Reply(200, Listing("items", items, {"nextCursor": None})).send(send, "id", share)
    (_, start), *bodies = sent
    body = b"".join(message["body"] for _, message in bodies)
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(body)
    assert {held for held, _ in sent} == {len(body) - UNCOUNTED}
    assert len(bodies) >= len(body) // (2 * CHUNK)
    assert all(len(message["body"]) < 2 * CHUNK for _, message in bodies)
    assert [message.get("more_body", False) for _, message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert body.startswith(b'{"items":[{"text":"xxx')
    assert body.endswith(b'"}],"nextCursor":null}')


async def test_an_answer_that_is_not_read_is_counted_until_it_is() -> None:
    budget, read = Budget(10 * MOST), asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await read.wait()

    async def answer() -> None:
        with budget.share() as share:
            await Reply(200, ["x" * MOST]).send(send, "id", share)

    answering = asyncio.ensure_future(answer())
    await asyncio.wait([answering], timeout=0.01)
    assert budget.held > MOST / 2
    read.set()
    await answering
    assert budget.held == 0


async def test_an_answer_that_would_be_too_much_is_not_begun() -> None:
    budget = Budget(MOST)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    with budget.share() as share, pytest.raises(Overloaded):
        await Reply(200, Listing("items", ["x" * MOST] * 3)).send(send, "id", share)
    assert (sent, budget.held) == ([], 0)
