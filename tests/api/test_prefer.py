"""`Prefer` on `POST /api/v1/jobs`: wait for the end of the job, or be answered at once."""

import asyncio
import gc
from typing import Any

import httpx
import msgspec
import pytest

from demora import Demora
from demora.api import Api
from demora.api.budget import Budget
from demora.core.access import Scope
from demora.errors import StoreBusy
from demora.wire.requests import JobRequest
from tests.api.asking import JOBS
from tests.api.keys import bearer, key_for

ECHO = {"type": "demo.echo", "payload": {"hi": 1}}
RECEIPT = {"id", "status", "createdAt", "scheduledAt", "dueAt"}


async def post(http: httpx.AsyncClient, prefer: str, asked: dict[str, Any] = ECHO, **headers: str) -> httpx.Response:
    return await http.post(JOBS, json=asked, headers={"prefer": prefer, **headers})


class Poster:
    """A caller that posts a job, waits, and can hang up."""

    def __init__(self, api: Api, asked: dict[str, Any]) -> None:
        self.sent: list[dict[str, Any]] = []
        self.waiting, self.gone = asyncio.Event(), asyncio.Event()
        self._body = [{"type": "http.request", "body": msgspec.json.encode(asked), "more_body": False}]
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"prefer", b"wait=60")]
        scope = {"type": "http", "method": "POST", "path": JOBS, "query_string": b"", "headers": headers}
        self.task = asyncio.ensure_future(api(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return self._body.pop()
        self.waiting.set()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(dict(message))


@pytest.mark.parametrize("prefer", ["wait=10", 'WAIT = "10"', "handling=lenient, wait=10; x=1", "wait=10, wait=0"])
async def test_a_job_that_ends_in_time_is_answered_with_its_result(
    http: httpx.AsyncClient, app: Demora, prefer: str
) -> None:
    async with app.worker():
        answer = await post(http, prefer)
    assert (answer.status_code, answer.json()["status"], answer.json()["result"]) == (200, "COMPLETED", {"hi": 1})
    assert answer.headers["preference-applied"] == "wait=10"
    assert answer.headers["location"] == f"{JOBS}/{answer.json()['id']}"
    assert "retry-after" not in answer.headers


async def test_a_job_that_does_not_end_in_time_is_answered_202(http: httpx.AsyncClient) -> None:
    answer = await post(http, "wait=0")
    assert (answer.status_code, answer.json()["status"]) == (202, "QUEUED")
    assert (answer.headers["preference-applied"], answer.headers["retry-after"]) == ("wait=0", "1")
    assert (await http.get(answer.headers["location"])).json() == answer.json()


async def test_a_caller_may_be_answered_at_once(http: httpx.AsyncClient) -> None:
    answer = await post(http, "respond-async")
    assert (answer.status_code, answer.json()["status"]) == (202, "QUEUED")
    assert (answer.headers["preference-applied"], answer.headers["retry-after"]) == ("respond-async", "1")
    assert (await http.get(answer.headers["location"])).json() == answer.json()


async def test_both_preferences_mean_a_wait(http: httpx.AsyncClient, app: Demora) -> None:
    async with app.worker():
        answer = await post(http, "wait=5, respond-async")
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "respond-async, wait=5")


async def test_the_longest_wait_is_a_minute(http: httpx.AsyncClient, app: Demora) -> None:
    async with app.worker():
        assert (await post(http, "wait=99999")).headers["preference-applied"] == "wait=60"


@pytest.mark.parametrize("prefer", ["", "wait", "wait=-1", "wait=1.5", "wait=ten", "wait=٣", "respond-async=no", "x=,;,="])
async def test_what_is_no_preference_changes_nothing(http: httpx.AsyncClient, prefer: str) -> None:
    answer = await http.post(JOBS, json=ECHO, headers=[(b"prefer", prefer.encode())])
    assert answer.status_code == 201
    assert not {"preference-applied", "retry-after"} & set(answer.headers)


async def test_a_repeated_request_waits_for_the_same_job(http: httpx.AsyncClient, app: Demora) -> None:
    first = await post(http, "wait=0", **{"idempotency-key": "k"})
    async with app.worker():
        second = await post(http, "wait=10", **{"idempotency-key": "k"})
    assert (first.status_code, second.status_code, second.json()["status"]) == (202, 200, "COMPLETED")
    assert (second.json()["id"], second.headers["idempotency-replayed"]) == (first.json()["id"], "true")


@pytest.mark.parametrize("prefer", ["wait=10", "respond-async", "wait=0"])
async def test_a_key_that_may_only_submit_sees_the_status_and_no_result(
    http: httpx.AsyncClient, app: Demora, prefer: str
) -> None:
    key = await key_for(app, Scope.SUBMIT)
    app.job("echo")(lambda hi: hi)
    async with app.worker():
        answer = await post(http, prefer, {**ECHO, "type": "echo"}, **bearer(key))
    assert set(answer.json()) == RECEIPT
    if prefer == "wait=10":
        assert (answer.status_code, answer.json()["status"]) == (200, "COMPLETED")


async def test_a_caller_that_goes_away_cancels_nothing(api: Api, app: Demora) -> None:
    caller = Poster(api, ECHO)
    await caller.waiting.wait()
    caller.gone.set()
    await caller.task
    [job] = (await app.find()).jobs
    assert (caller.sent, job.status.name, job.cancel_requested_at) == ([], "QUEUED", None)


async def test_a_wait_ends_when_the_service_stops(api: Api) -> None:
    caller = Poster(api, ECHO)
    await caller.waiting.wait()
    api.stop()
    await caller.task
    assert [message.get("status") for message in caller.sent] == [202, None]


async def test_a_waiting_request_holds_neither_its_body_nor_bytes_of_the_budget(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[int] = []
    move = Budget.move
    monkeypatch.setattr(Budget, "move", lambda budget, by: (moves.append(by), move(budget, by)))
    caller = Poster(api, {**ECHO, "payload": {"text": "x" * 500_000}})
    await caller.waiting.wait()
    assert max(moves) > 400_000
    assert sum(moves) == 0
    gc.collect()
    assert [one for one in gc.get_objects() if type(one) is JobRequest] == []
    caller.gone.set()
    await caller.task


async def test_a_job_that_cannot_be_read_after_it_was_stored_is_accepted(
    http: httpx.AsyncClient, app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(id: str) -> None:
        raise StoreBusy("locked")

    with monkeypatch.context() as patched:
        patched.setattr((await app.open()).store, "get", busy)
        answer = await post(http, "wait=10")
    assert (answer.status_code, set(answer.json())) == (202, RECEIPT)
    assert (await http.get(answer.headers["location"])).json()["status"] == "QUEUED"
