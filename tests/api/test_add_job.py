"""`POST /api/v1/jobs`: what it takes, what it answers, and what a repeated key does."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx

from demora import Demora
from tests.api.asking import JOBS, add, problem, stored

SHOWN = {
    *("id", "name", "type", "queue", "payload", "priority", "status", "scheduledAt", "createdAt", "startedAt"),
    *(
        "completedAt",
        "maxRetries",
        "retryCount",
        "retryDelay",
        "attempts",
        "result",
        "error",
        "progress",
        "workerId",
        "tags",
    ),
}


async def test_a_job_is_answered_with_201_and_its_place(http: httpx.AsyncClient) -> None:
    answer = await http.post(JOBS, json={"type": "demo.echo", "payload": {"hi": 1}})
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{JOBS}/{answer.json()['id']}"
    assert (await http.get(answer.headers["location"])).json() == answer.json()


async def test_a_job_shows_every_field_of_the_contract(http: httpx.AsyncClient) -> None:
    assert set(await add(http)) >= SHOWN


async def test_what_is_left_out_has_its_default(http: httpx.AsyncClient) -> None:
    job = await add(http)
    usual = {
        "name": "demo.echo",
        "payload": {},
        "queue": "default",
        "priority": "NORMAL",
        "maxRetries": 3,
        "retryDelay": 1000,
    }
    assert {name: job[name] for name in usual} == usual
    assert job["scheduledAt"] == job["createdAt"]


async def test_null_is_the_same_as_left_out(http: httpx.AsyncClient) -> None:
    bare = await add(http)
    full = await add(http, name=None, payload=None, queue=None, priority=None, scheduledAt=None, delay=None, tags=None)
    assert {name for name in bare if bare[name] != full[name]} <= {"id", "createdAt", "scheduledAt", "dueAt"}


async def test_what_is_given_is_kept(http: httpx.AsyncClient) -> None:
    asked = {
        "name": "Héllo \U0001f600",
        "payload": {"a": [1, 2.5, None, True, "x"], "big": 2**63 - 1},
        "queue": "mail",
        "priority": "CRITICAL",
        "scheduledAt": "2100-01-01T02:00:00.123+02:00",
        "maxRetries": 0,
        "retryDelay": 250,
        "timeout": 1500,
        "tags": ["a", "b"],
        "webhookUrl": "https://example.com/hook?x=1",
    }
    job = await add(http, **asked)
    kept = (await http.get(f"{JOBS}/{job['id']}")).json()
    assert {name: kept[name] for name in asked} == {**asked, "scheduledAt": "2100-01-01T00:00:00.123Z"}


async def test_a_delay_is_milliseconds(http: httpx.AsyncClient) -> None:
    job = await add(http, delay=90_000)
    created, due = (datetime.fromisoformat(job[name]) for name in ("createdAt", "scheduledAt"))
    assert due - created == timedelta(milliseconds=90_000)


async def test_a_time_that_has_passed_means_now(http: httpx.AsyncClient) -> None:
    job = await add(http, scheduledAt=(datetime.now(UTC) - timedelta(days=1)).isoformat())
    assert job["scheduledAt"] == job["createdAt"]


async def test_a_repeated_key_answers_the_same_and_says_so(http: httpx.AsyncClient, app: Demora) -> None:
    first = await http.post(JOBS, json={"type": "demo.echo"}, headers={"Idempotency-Key": "k"})
    again = await http.post(JOBS, json={"type": "demo.echo", "idempotencyKey": "k"})
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["location"] == first.headers["location"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert await stored(app) == 1


async def test_a_repeated_key_answers_the_same_after_the_job_ran(http: httpx.AsyncClient, app: Demora) -> None:
    first = await add(http, idempotencyKey="k")
    async with app.worker():
        await app.wait(first["id"])
    assert await add(http, idempotencyKey="k") == first


async def test_a_key_for_another_request_is_refused(http: httpx.AsyncClient, app: Demora) -> None:
    await add(http, idempotencyKey="k")
    problem(await http.post(JOBS, json={"type": "demo.fail", "idempotencyKey": "k"}), 422, "idempotencyKey")
    assert await stored(app) == 1


async def test_a_key_by_header_and_field_must_be_the_same(http: httpx.AsyncClient, app: Demora) -> None:
    asked = {"type": "demo.echo", "idempotencyKey": "a"}
    problem(await http.post(JOBS, json=asked, headers={"Idempotency-Key": "b"}), 422, "idempotencyKey")
    problem(await http.post(JOBS, json=asked, headers=[("idempotency-key", "a"), ("idempotency-key", "b")]), 422)
    assert await stored(app) == 0
    assert (await http.post(JOBS, json=asked, headers={"Idempotency-Key": "a"})).status_code == 201


async def test_a_key_in_the_header_is_read_as_utf_8(http: httpx.AsyncClient) -> None:
    first = await http.post(JOBS, json={"type": "demo.echo"}, headers={b"idempotency-key": "ключ".encode()})
    assert await add(http, idempotencyKey="ключ") == first.json()


async def test_200_parallel_requests_with_one_key_make_one_job(http: httpx.AsyncClient, app: Demora) -> None:
    answers = await asyncio.gather(*(add(http, idempotencyKey="one") for _ in range(200)))
    assert len({answer["id"] for answer in answers}) == 1
    assert await stored(app) == 1


async def test_only_known_types_are_taken_where_that_is_set(http: httpx.AsyncClient, app: Demora) -> None:
    app.registry.known_types_only = True
    problem(await http.post(JOBS, json={"type": "never.heard.of"}), 422, "type")
    batch = {"jobs": [{"type": "demo.echo"}, {"type": "never.heard.of"}]}
    problem(await http.post(f"{JOBS}/batch", json=batch), 422, "jobs[1].type")
    assert (await http.post(JOBS, json={"type": "demo.echo"})).status_code == 201


async def test_a_payload_that_does_not_fit_its_handler_is_refused(http: httpx.AsyncClient, app: Demora) -> None:
    asked = {"type": "demo.sleep", "payload": {"seconds": "long"}}
    problem(await http.post(JOBS, json=asked), 422, "payload.seconds")
    problem(await http.post(JOBS, json={"type": "demo.sleep", "payload": {"minutes": 1}}), 422, "payload.minutes")
    assert await stored(app) == 0
