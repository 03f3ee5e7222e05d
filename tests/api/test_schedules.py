"""Schedules over HTTP."""

from typing import Any

import httpx
import pytest

from tests.api.asking import problem

SCHEDULES = "/api/v1/schedules"
NIGHTLY: dict[str, Any] = {"name": "nightly", "type": "demo.echo", "cron": "0 3 * * *", "timezone": "Europe/Madrid"}


async def added(http: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await http.post(SCHEDULES, json=NIGHTLY | changes)
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_schedule_is_added_shown_listed_changed_and_deleted(http: httpx.AsyncClient) -> None:
    shown = await added(http, payload={"a": 1}, overlap="skip", jitter=60_000, tags=["x"])
    assert shown["payload"] == {"a": 1}
    assert (shown["timezone"], shown["overlap"], shown["jitter"]) == ("Europe/Madrid", "skip", 60_000)
    assert (shown["origin"], shown["runCount"], shown["lastRunAt"], shown["enabled"]) == ("api", 0, None, True)
    assert (await http.get(f"{SCHEDULES}/nightly")).json() == shown
    assert (await http.get(SCHEDULES)).json() == {"schedules": [shown], "nextCursor": None}
    changed = (await http.patch(f"{SCHEDULES}/nightly", json={"every": 90_000})).json()
    assert (changed["cron"], changed["every"], changed["changedBy"]) == (None, 90_000, "http")
    assert (await http.delete(f"{SCHEDULES}/nightly")).status_code == 204
    problem(await http.get(f"{SCHEDULES}/nightly"), 404)


async def test_schedules_come_by_name_page_by_page(http: httpx.AsyncClient) -> None:
    for name in ("c", "a", "b"):
        await added(http, name=name)
    first = (await http.get(f"{SCHEDULES}?limit=2")).json()
    rest = (await http.get(f"{SCHEDULES}?limit=2&cursor={first['nextCursor']}")).json()
    assert [one["name"] for one in first["schedules"] + rest["schedules"]] == ["a", "b", "c"]
    assert rest["nextCursor"] is None


async def test_a_schedule_is_paused_with_a_reason_and_resumed(http: httpx.AsyncClient) -> None:
    await added(http)
    paused = (await http.post(f"{SCHEDULES}/nightly/pause", json={"reason": "holiday"})).json()
    assert (paused["enabled"], paused["reason"], paused["nextRunAt"]) == (False, "holiday", None)
    assert (await http.get(f"{SCHEDULES}/nightly/next-runs")).json()["runs"] == []
    resumed = (await http.post(f"{SCHEDULES}/nightly/resume")).json()
    assert (resumed["enabled"], resumed["reason"]) == (True, None)
    assert resumed["nextRunAt"] is not None


async def test_a_triggered_job_shows_its_schedule(http: httpx.AsyncClient) -> None:
    await added(http)
    answer = await http.post(f"{SCHEDULES}/nightly/trigger")
    job = answer.json()
    assert (answer.status_code, job["scheduleName"], job["slotAt"]) == (201, "nightly", None)
    listed = (await http.get(f"{SCHEDULES}/nightly/jobs")).json()
    assert [one["id"] for one in listed["jobs"]] == [job["id"]]
    problem(await http.get(f"{SCHEDULES}/mightly/jobs"), 404)


async def test_next_runs_are_times_in_utc(http: httpx.AsyncClient) -> None:
    await added(http, cron="0 0 1 1 *", timezone="UTC")
    answer = (await http.get(f"{SCHEDULES}/nightly/next-runs?count=2")).json()
    assert (answer["timezone"], len(answer["runs"])) == ("UTC", 2)
    assert all(run.endswith("-01-01T00:00:00.000Z") for run in answer["runs"])


async def test_a_preview_says_when_it_would_fire_and_adds_nothing(http: httpx.AsyncClient) -> None:
    answer = await http.post(f"{SCHEDULES}/preview", json={"cron": "0 3 * * *", "timezone": "Europe/Madrid", "count": 3})
    shown = answer.json()
    assert (answer.status_code, shown["words"]) == (200, "every day at 03:00, Europe/Madrid")
    assert len(shown["runs"]) == 3
    assert (await http.get(SCHEDULES)).json()["schedules"] == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "every day"}, "cron"),
        ({"cron": None}, "cron"),
        ({"every": 90_000}, "every"),
        ({"timezone": "Europe/Madird"}, "timezone"),
        ({"endAt": "2020-01-01T00:00:00Z"}, "endAt"),
        ({"overlap": "perhaps"}, "overlap"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"type": "demo.sleep", "payload": {"ms": "long"}}, "payload.ms"),
        ({"missedLimit": 0}, "missedLimit"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_and_not_stored(
    http: httpx.AsyncClient, changes: dict[str, Any], field: str
) -> None:
    problem(await http.post(SCHEDULES, json=NIGHTLY | changes), 422, field)
    assert (await http.get(SCHEDULES)).json()["schedules"] == []


async def test_a_name_that_is_taken_is_refused(http: httpx.AsyncClient) -> None:
    await added(http)
    told = problem(await http.post(SCHEDULES, json=NIGHTLY | {"cron": "0 4 * * *"}), 409)
    assert "'nightly' exists" in told["detail"]
    assert (await http.get(f"{SCHEDULES}/nightly")).json()["cron"] == "0 3 * * *"


async def test_a_change_of_nothing_is_refused(http: httpx.AsyncClient) -> None:
    await added(http)
    problem(await http.patch(f"{SCHEDULES}/nightly", json={}), 422, "body")
