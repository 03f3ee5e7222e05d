"""`GET /api/v1/events`: server-sent events for as long as the listener listens."""

import asyncio
import json

import httpx
import pytest

from demora import Demora
from demora.api import Api, make_api
from demora.api.operations import events
from demora.client import events as reading
from demora.core.access import Scope
from demora.settings import Settings
from tests.api.asking import add, problem
from tests.api.keys import bearer, key_for, revoke
from tests.api.listening import EVENTS, SOON, listening
from tests.builders import BROKEN, run_one


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOOK", 0.01)
    monkeypatch.setattr(reading, "PAUSE", 0.001)


async def test_a_listener_hears_events_as_they_happen(api: Api, http: httpx.AsyncClient, app: Demora) -> None:
    async with listening(api) as listener:
        assert (listener.status, listener.headers["content-type"]) == (200, "text/event-stream")
        assert (listener.headers["x-accel-buffering"], listener.headers["cache-control"]) == ("no", "no-store")
        assert "content-length" not in listener.headers
        job = await add(http, payload={"hi": 1}, tags=["a"])
        await run_one((await app.open()).store)
        added, completed = await listener.hear("job.added", "job.completed")
        assert added["data"]["job"]["id"] == job["id"]
        assert completed["data"]["job"]["status"] == "COMPLETED"
        assert "hi" not in json.dumps([added, completed])
        await http.post("/api/v1/queues/mail/pause", json={"reason": "full"})
        [paused] = await listener.hear("queue.paused")
        assert paused["data"] == {
            "event": "queue.paused",
            "at": paused["data"]["at"],
            "queue": "mail",
            "by": "http",
            "reason": "full",
        }
        await http.patch("/api/v1/queues/mail", json={"pace": {"burst": 2}})
        await http.patch("/api/v1/queues/mail", json={"pace": None})
        on, *_ = await listener.hear("queue.pace")
        assert on["data"]["pace"]["burst"] == 2


async def test_a_listener_resumes_with_the_id_that_it_heard_last(api: Api, http: httpx.AsyncClient, app: Demora) -> None:
    store = (await app.open()).store
    async with listening(api) as listener:
        await add(http)
        await run_one(store)
        [_, completed] = await listener.hear("job.added", "job.completed")
    missed = await add(http)
    await run_one(store, BROKEN)
    async with listening(api, Last_Event_ID=completed["id"]) as listener:
        [failed] = await listener.hear("job.failed")
        assert (failed["data"]["job"]["id"], failed["data"]["job"]["error"]) == (missed["id"], "ValueError: no")


@pytest.mark.parametrize("id", ["", "never", "9" * 15, "1" * 20_000])
async def test_an_id_that_is_too_old_is_answered_with_a_reset(api: Api, http: httpx.AsyncClient, id: str) -> None:
    async with listening(api, Last_Event_ID=id) as listener:
        await listener.hear("reset")
        await add(http)
        await listener.hear("job.added")


async def test_a_listener_hears_only_what_it_asked_for(api: Api, http: httpx.AsyncClient) -> None:
    async with listening(api, "queue=mail&type=demo.echo&tag=a") as listener:
        await add(http)
        await add(http, queue="mail")
        job = await add(http, queue="mail", tags=["a"])
        [heard] = await listener.hear("job.added")
        assert heard["data"]["job"]["id"] == job["id"]


async def test_listeners_with_the_same_filter_share_the_text(api: Api, http: httpx.AsyncClient) -> None:
    batch = reading.Batch([], "1", "2")
    assert events._text(batch, reading.EventFilter(queue="mail")) is events._text(batch, reading.EventFilter(queue="mail"))
    assert len(batch.texts) == 1


async def test_a_silent_stream_sends_comments_with_its_position(
    api: Api, http: httpx.AsyncClient, app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "COMMENT_EVERY", 0.02)
    async with listening(api, "queue=other") as listener:
        await add(http)
        await run_one((await app.open()).store)
        await listener.until(b":\nid: 1\n\n")
        assert b"data" not in listener.text


async def test_a_stream_is_never_compressed(api: Api, http: httpx.AsyncClient) -> None:
    async with listening(api, Accept_Encoding="gzip") as listener:
        await add(http, name="x" * 200)
        await listener.hear("job.added")
        assert "content-encoding" not in listener.headers


async def test_a_stream_ends_when_the_service_stops(api: Api) -> None:
    async with listening(api) as listener:
        api.stop()
        async with asyncio.timeout(SOON):
            await listener.task
        assert listener.ended


async def test_a_stream_ends_when_its_key_is_revoked(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "COMMENT_EVERY", 0.02)
    monkeypatch.setattr("demora.api.access.FRESH", 0.0)
    api, key = make_api(app, Settings()), await key_for(app, Scope.READ)
    async with listening(api, **bearer(key)) as listener, listening(api, **bearer(await key_for(app, Scope.READ))) as other:
        await revoke(app, key)
        async with asyncio.timeout(SOON):
            await listener.task
        assert listener.ended
        assert not other.ended


async def test_a_busy_stream_ends_when_its_key_is_revoked(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "COMMENT_EVERY", 3600.0)
    monkeypatch.setattr("demora.api.access.FRESH", 0.0)
    api, key = make_api(app, Settings()), await key_for(app, Scope.READ)
    async with listening(api, **bearer(key)) as listener:
        await app.enqueue("demo.echo")
        await listener.hear("job.added")
        await revoke(app, key)
        await app.enqueue("demo.echo")
        async with asyncio.timeout(SOON):
            await listener.task
        assert listener.ended


async def test_a_listener_that_does_not_read_is_cut_off_and_others_hear_all(
    api: Api, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_PENDING", 3)
    async with listening(api) as slow, listening(api) as quick:
        slow.reads.clear()
        for _ in range(6):
            await add(http)
            await quick.hear("job.added")
        slow.reads.set()
        async with asyncio.timeout(SOON):
            await slow.task
        assert slow.ended


async def test_a_listener_that_hangs_up_leaves_no_task(api: Api) -> None:
    before = set(asyncio.all_tasks())
    async with listening(api):
        pass
    async with asyncio.timeout(SOON):
        await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)


@pytest.mark.parametrize("query", ["queue=a b", "type=", "tag=", "job=", f"job={'x' * 37}", "state=x", "queue=a&queue=b"])
async def test_a_malformed_filter_is_refused(http: httpx.AsyncClient, query: str) -> None:
    problem(await http.get(f"{EVENTS}?{query}"), 422, query.partition("=")[0])


async def test_only_the_head_is_answered_at_once(http: httpx.AsyncClient) -> None:
    answer = await http.head(EVENTS)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
