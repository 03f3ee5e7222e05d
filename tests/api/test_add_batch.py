"""`POST /api/v1/jobs/batch`: in order, all or nothing."""

from typing import Any

import httpx
import pytest

from demora import Demora
from tests.api.asking import JOBS, JSON, problem, stored

BATCH = f"{JOBS}/batch"


def echoes(count: int) -> list[dict[str, Any]]:
    return [{"type": "demo.echo", "payload": {"n": n}} for n in range(count)]


@pytest.mark.parametrize("count", [1, 3, 1000])
async def test_a_batch_answers_its_jobs_in_order(http: httpx.AsyncClient, count: int) -> None:
    answer = await http.post(BATCH, json={"jobs": echoes(count)})
    assert answer.status_code == 201
    assert [job["payload"]["n"] for job in answer.json()["jobs"]] == list(range(count))


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_batch_has_1_to_1000_jobs(http: httpx.AsyncClient, app: Demora, count: int) -> None:
    problem(await http.post(BATCH, json={"jobs": echoes(count)}), 422, "jobs")
    assert await stored(app) == 0


@pytest.mark.parametrize(
    ("bad", "status", "field"),
    [
        ({"type": 7}, 422, "jobs[3].type"),
        ({}, 422, "jobs[3].type"),
        ({"type": "no spaces"}, 422, "jobs[3].type"),
        ({"type": "demo.echo", "status": "COMPLETED"}, 422, "jobs[3].status"),
        ({"type": "demo.echo", "delay": -1}, 422, "jobs[3].delay"),
        ({"type": "demo.echo", "delay": 2**80}, 422, "jobs[3].delay"),
        ({"type": "demo.echo", "tags": ["ok", ""]}, 422, "jobs[3].tags[1]"),
        ({"type": "demo.echo", "payload": {"x": "y" * 1024 * 1024}}, 413, "jobs[3].payload"),
        (5, 422, "jobs[3]"),
    ],
)
async def test_one_bad_job_keeps_out_the_whole_batch(
    http: httpx.AsyncClient, app: Demora, bad: Any, status: int, field: str
) -> None:
    problem(await http.post(BATCH, json={"jobs": [*echoes(3), bad, *echoes(2)]}), status, field)
    assert await stored(app) == 0


async def test_a_key_that_means_another_request_keeps_out_the_whole_batch(http: httpx.AsyncClient, app: Demora) -> None:
    jobs = [{**job, "idempotencyKey": "same"} for job in echoes(2)]
    problem(await http.post(BATCH, json={"jobs": jobs}), 422, "jobs[1].idempotencyKey")
    assert await stored(app) == 0


async def test_a_repeated_batch_with_keys_adds_nothing(http: httpx.AsyncClient, app: Demora) -> None:
    jobs = [{**job, "idempotencyKey": f"k{n}"} for n, job in enumerate(echoes(3))]
    first, again = [await http.post(BATCH, json={"jobs": jobs}) for _ in range(2)]
    assert first.json() == again.json()
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert await stored(app) == 3


async def test_a_key_for_the_whole_batch_is_refused_rather_than_ignored(http: httpx.AsyncClient, app: Demora) -> None:
    answer = await http.post(BATCH, json={"jobs": echoes(1)}, headers={"Idempotency-Key": "k"})
    problem(answer, 422, "Idempotency-Key")
    assert await stored(app) == 0


async def test_a_batch_may_be_larger_than_one_job_but_not_than_16_mib(http: httpx.AsyncClient, app: Demora) -> None:
    large = {"type": "demo.echo", "payload": {"x": "y" * 900_000}}
    assert (await http.post(BATCH, json={"jobs": [large] * 3})).status_code == 201
    problem(await http.post(BATCH, content=b'{"jobs":[' + b" " * 16 * 1024 * 1024, headers=JSON), 413, "body")
    assert await stored(app) == 3
