"""`/api/v1/jobs/{id}` and its verbs: get, change, delete, cancel, retry."""

import asyncio
from typing import Any

import httpx
import pytest

from demora import Demora
from tests.api.asking import JOBS, NO_SUCH_ID, add, problem


async def ended(http: httpx.AsyncClient, app: Demora, type: str = "demo.echo") -> dict[str, Any]:
    async with app.worker():
        job = await add(http, type, maxRetries=0)
        await app.wait(job["id"])
    return (await http.get(f"{JOBS}/{job['id']}")).json()


@pytest.mark.parametrize("id", [NO_SUCH_ID, "1", "no id", "%00", "%ff", "é", "a" * 3000])
@pytest.mark.parametrize(
    ("method", "verb"),
    [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("POST", "/retry"), ("GET", "/wait"), ("PATCH", "")],
)
async def test_a_job_that_is_not_there_is_a_404(http: httpx.AsyncClient, method: str, verb: str, id: str) -> None:
    body = {"priority": "LOW"} if method == "PATCH" else None
    problem(await http.request(method, f"{JOBS}/{id}{verb}", json=body), 404)


async def test_an_ended_job_shows_its_attempts_and_its_result(http: httpx.AsyncClient, app: Demora) -> None:
    done = await ended(http, app)
    assert (done["status"], done["result"], done["retryCount"]) == ("COMPLETED", {}, 0)
    assert [attempt["error"] for attempt in done["attempts"]] == [None]
    dead = await ended(http, app, "demo.fail")
    assert (dead["status"], dead["error"]) == ("FAILED", "RuntimeError: this job always fails")
    assert {"startedAt", "endedAt", "workerId", "error"} <= set(dead["attempts"][0])


async def test_a_waiting_job_can_be_changed(http: httpx.AsyncClient) -> None:
    job = await add(http, delay=60_000)
    change = {"priority": "HIGH", "scheduledAt": "2090-05-05T05:05:05.005Z", "tags": ["late"]}
    answer = await http.patch(f"{JOBS}/{job['id']}", json=change)
    assert answer.status_code == 200
    assert answer.json() == {**job, **change, "dueAt": change["scheduledAt"]}


async def test_what_a_change_leaves_out_stays(http: httpx.AsyncClient) -> None:
    job = await add(http, delay=60_000, tags=["a"], priority="LOW")
    path = f"{JOBS}/{job['id']}"
    assert (await http.patch(path, json={"tags": []})).json() == {**job, "tags": []}
    assert (await http.patch(path, json={"priority": "HIGH"})).json() == {**job, "tags": [], "priority": "HIGH"}


async def test_a_delay_counts_from_the_change(http: httpx.AsyncClient) -> None:
    job = await add(http, delay=3_600_000)
    changed = (await http.patch(f"{JOBS}/{job['id']}", json={"delay": 0})).json()
    assert job["createdAt"] <= changed["scheduledAt"] < job["scheduledAt"]


async def test_a_job_is_not_moved_beyond_its_expiry(http: httpx.AsyncClient) -> None:
    job = await add(http, delay=60_000, expiresIn=3_600_000)
    path = f"{JOBS}/{job['id']}"
    refused = problem(await http.patch(path, json={"delay": 7_200_000}), 422, "delay")
    assert job["expiresAt"] in refused["detail"]
    assert (await http.get(path)).json() == job
    assert (await http.patch(path, json={"delay": 120_000})).status_code == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({}, "body"),
        ({"priority": None}, "body"),
        ({"priority": "URGENT"}, "priority"),
        ({"priority": 1}, "priority"),
        ({"scheduledAt": "2090-01-01T00:00:00"}, "scheduledAt"),
        ({"delay": -1}, "delay"),
        ({"delay": 1, "scheduledAt": "2090-01-01T00:00:00Z"}, "delay"),
        ({"tags": "a"}, "tags"),
        ({"tags": ["\0"]}, "tags[0]"),
        ({"status": "COMPLETED"}, "status"),
        ({"attempt": 0}, "attempt"),
    ],
)
async def test_a_change_that_means_nothing_is_refused(http: httpx.AsyncClient, change: dict[str, Any], field: str) -> None:
    job = await add(http, delay=60_000)
    problem(await http.patch(f"{JOBS}/{job['id']}", json=change), 422, field)
    assert (await http.get(f"{JOBS}/{job['id']}")).json() == job


async def test_a_job_that_no_longer_waits_cannot_be_changed(http: httpx.AsyncClient, app: Demora) -> None:
    job = await ended(http, app)
    problem(await http.patch(f"{JOBS}/{job['id']}", json={"priority": "LOW"}), 409)


async def test_an_ended_job_can_be_deleted_and_a_waiting_one_cannot(http: httpx.AsyncClient, app: Demora) -> None:
    gone, waiting = await ended(http, app), await add(http, delay=60_000)
    answer = await http.delete(f"{JOBS}/{gone['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    problem(await http.get(f"{JOBS}/{gone['id']}"), 404)
    problem(await http.delete(f"{JOBS}/{waiting['id']}"), 409)
    assert (await http.get(f"{JOBS}/{waiting['id']}")).status_code == 200


async def test_a_waiting_job_is_cancelled_at_once_and_only_once(http: httpx.AsyncClient) -> None:
    job = await add(http, delay=60_000)
    answer = await http.post(f"{JOBS}/{job['id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
    problem(await http.post(f"{JOBS}/{job['id']}/cancel"), 409)


async def test_a_cancel_of_a_running_job_is_accepted_and_heard(http: httpx.AsyncClient, app: Demora) -> None:
    running = asyncio.Event()

    @app.job("long")
    async def long() -> None:
        running.set()
        await asyncio.Event().wait()

    async with app.worker():
        job = await add(http, "long")
        await running.wait()
        answer = await http.post(f"{JOBS}/{job['id']}/cancel", json={})
        assert (answer.status_code, answer.json()["status"]) == (202, "PROCESSING")
        assert answer.json()["cancelRequestedAt"] is not None
        assert (await http.get(f"{JOBS}/{job['id']}/wait")).json()["status"] == "CANCELLED"


async def test_failed_and_cancelled_jobs_can_be_retried_and_no_others(http: httpx.AsyncClient, app: Demora) -> None:
    dead, done, waiting = await ended(http, app, "demo.fail"), await ended(http, app), await add(http, delay=60_000)
    answer = await http.post(f"{JOBS}/{dead['id']}/retry")
    assert (answer.status_code, answer.json()["id"], answer.json()["status"]) == (200, dead["id"], "QUEUED")
    for other in (done, waiting, dead):
        problem(await http.post(f"{JOBS}/{other['id']}/retry"), 409)


async def test_a_verb_without_fields_takes_none(http: httpx.AsyncClient) -> None:
    job = await add(http, delay=60_000)
    problem(await http.post(f"{JOBS}/{job['id']}/cancel", json={"force": True}), 422, "force")
    assert (await http.get(f"{JOBS}/{job['id']}")).json()["status"] == "QUEUED"
