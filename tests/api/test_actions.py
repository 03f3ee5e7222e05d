"""Actions over HTTP: accepted with a place to follow them, carried out by a worker."""

from typing import Any

import httpx
import pytest

from demora import Demora
from tests.api.asking import JOBS, problem
from tests.facts import eventually

ACTIONS = f"{JOBS}/actions"


async def carried_out(http: httpx.AsyncClient, answer: httpx.Response) -> dict[str, Any]:
    """The action when it has ended."""

    async def look() -> dict[str, Any]:
        return (await http.get(answer.headers["location"])).json()  # type: ignore[no-any-return]

    return await eventually(look, lambda seen: seen["completedAt"] is not None)


async def test_an_action_is_accepted_and_a_worker_carries_it_out(http: httpx.AsyncClient, app: Demora) -> None:
    ids = [(await app.enqueue("demo.echo", delay="1h", tags=["old"])).id for _ in range(3)]
    kept = await app.enqueue("demo.echo", delay="1h")
    answer = await http.post(ACTIONS, json={"action": "cancel", "filter": {"tag": ["old"]}})
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "1")
    asked = answer.json()
    assert answer.headers["location"] == f"{ACTIONS}/{asked['id']}"
    assert (asked["status"], asked["by"], asked["matched"]) == ("QUEUED", "http", 0)
    async with app.worker(queues=["mail"]):
        done = await carried_out(http, answer)
    assert (done["status"], done["matched"], done["done"], done["skipped"]) == ("COMPLETED", 3, 3, 0)
    assert {(await app.get(id)).status.name for id in ids} == {"CANCELLED"}
    assert (await app.get(kept.id)).status.name == "QUEUED"


async def test_a_dry_run_over_http_only_counts(http: httpx.AsyncClient, app: Demora) -> None:
    job = await app.enqueue("demo.echo", delay="1h")
    answer = await http.post(ACTIONS, json={"action": "cancel", "filter": {"search": "type:demo.*"}, "dryRun": True})
    async with app.worker():
        done = await carried_out(http, answer)
    assert (done["dryRun"], done["matched"], done["done"]) == (True, 1, 0)
    assert (await app.get(job.id)).status.name == "QUEUED"


async def test_jobs_are_rescheduled_over_http(http: httpx.AsyncClient, app: Demora) -> None:
    job = await app.enqueue("demo.echo", delay="1h")
    body = {"action": "reschedule", "filter": {"type": "demo.echo"}, "scheduledAt": "2090-01-01T00:00:00Z"}
    answer = await http.post(ACTIONS, json=body)
    async with app.worker():
        assert (await carried_out(http, answer))["done"] == 1
    assert (await app.get(job.id)).due_at.year == 2090


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "cancel"}, "filter"),
        ({"action": "cancel", "filter": {}}, "filter"),
        ({"action": "fly", "all": True}, "action"),
        ({"action": "reschedule", "all": True}, "scheduledAt"),
        ({"action": "cancel", "all": True, "priority": "LOW"}, "priority"),
        ({"action": "delete", "filter": {"status": ["QUEUED"]}}, "status"),
        ({"action": "cancel", "filter": {"tag": ["x" * 60 + str(n) for n in range(20)]}}, "search"),
    ],
)
async def test_an_action_that_selects_nothing_or_makes_no_sense_is_refused(
    http: httpx.AsyncClient, body: dict[str, Any], field: str
) -> None:
    problem(await http.post(ACTIONS, json=body), 422, field)


async def test_nobody_can_add_an_action_as_a_plain_job(http: httpx.AsyncClient) -> None:
    payload = {"action": "delete", "filter": "", "dry_run": False, "by": "me"}
    problem(await http.post(JOBS, json={"type": "demora.action", "payload": payload}), 422, "type")


async def test_a_job_that_is_no_action_is_not_found_among_them(http: httpx.AsyncClient, app: Demora) -> None:
    job = await app.enqueue("demo.echo")
    problem(await http.get(f"{ACTIONS}/{job.id}"), 404)


@pytest.mark.parametrize("queue", ["demora.actions", "demora.webhooks"])
async def test_callers_add_no_jobs_to_the_queues_of_demora(http: httpx.AsyncClient, queue: str) -> None:
    """Every worker serves these queues, no pace holds their jobs, and verbs on many jobs leave them alone."""
    for path, body in [
        ("/api/v1/jobs", {"type": "a", "queue": queue}),
        ("/api/v1/jobs/batch", {"jobs": [{"type": "a", "queue": queue}]}),
        ("/api/v1/schedules", {"name": "n", "type": "a", "queue": queue, "every": 60_000}),
    ]:
        refused = await http.post(path, json=body)
        assert (refused.status_code, "demora adds itself" in refused.text) == (422, True), path
