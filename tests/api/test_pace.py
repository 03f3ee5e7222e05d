"""Paces, why a job waits, and spread batches, over HTTP."""

from typing import Any

import httpx
import pytest

from demora import Demora
from demora.core.access import Scope
from tests.api.asking import JOBS, NO_SUCH_ID, add, problem, stored
from tests.api.keys import bearer, key_for

MAIL = "/api/v1/queues/mail"
PACE = {
    "gap": 120000,
    "burst": 3,
    "stagger": 30000,
    "rapid": {"gap": 30000, "burst": 5, "stagger": 5000},
    "governs": "both",
}


async def set_pace(http: httpx.AsyncClient, **pace: Any) -> dict[str, Any]:
    answer = await http.patch(MAIL, json={"pace": pace})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()["pace"]
    return shown


async def test_a_pace_is_set_shown_and_taken_off(http: httpx.AsyncClient) -> None:
    shown = await set_pace(http, **PACE)
    assert {name: shown[name] for name in PACE} == PACE
    [queue] = (await http.get("/api/v1/queues")).json()["queues"]
    assert queue["pace"] == shown
    assert (await http.patch(MAIL, json={"pace": None})).json()["pace"] is None
    assert (await http.patch(MAIL, json={"pace": "default"})).json()["pace"] is None  # that of all queues, which have none
    assert (await http.patch(MAIL, json={"pace": "usual"})).status_code == 422


async def test_a_queue_comes_into_being_with_its_pace_and_what_is_left_out_is_usual(http: httpx.AsyncClient) -> None:
    shown = await set_pace(http, burst=7)
    assert (shown["gap"], shown["burst"], shown["stagger"]) == (120_000, 7, 17_142)
    assert shown["rapid"] is None
    assert (await set_pace(http, rapid={}))["rapid"] == {"gap": 30_000, "burst": 5, "stagger": 6000}


async def test_what_is_left_out_stays(http: httpx.AsyncClient) -> None:
    await set_pace(http, gap=5000, protect=["web"])
    shown = await set_pace(http, rapid=None)
    assert (shown["gap"], shown["protect"], shown["rapid"]) == (5000, ["web"], None)


async def test_other_changes_leave_the_pace_alone(http: httpx.AsyncClient) -> None:
    shown = await set_pace(http, **PACE)
    assert (await http.patch(MAIL, json={"strict": True})).json()["pace"] == shown
    assert (await http.post(f"{MAIL}/pause")).json()["pace"] == shown


async def test_a_change_is_recorded_with_the_name_of_the_key(http: httpx.AsyncClient, app: Demora) -> None:
    key = await key_for(app, Scope.ADMIN)
    changed = await http.patch(MAIL, json={"pace": {"burst": 2}}, headers=bearer(key))
    assert changed.json()["pace"]["setBy"] == "test"


async def test_a_change_without_a_key_is_recorded_as_one_over_http(http: httpx.AsyncClient, app: Demora) -> None:
    assert (await set_pace(http, burst=1))["setBy"] == "http"
    [change] = await (await app.open()).pace_changes("mail")
    assert (change.by, change.pace and change.pace.burst) == ("http", 1)


@pytest.mark.parametrize(
    ("pace", "field"),
    [
        ({"gap": -1}, "pace.gap"),
        ({"gap": "2m"}, "pace.gap"),
        ({"burst": 0}, "pace.burst"),
        ({"burst": 10_001}, "pace.burst"),
        ({"stagger": 2**70}, "pace.stagger"),
        ({"rapid": {"burst": 0}}, "pace.rapid.burst"),
        ({"governs": "all"}, "pace.governs"),
        ({"protect": ["no spaces"]}, "pace.protect"),
        ({"unknown": 1}, "pace.unknown"),
        ({"gap": 0, "stagger": 0}, "pace.gap"),
        ({"rapid": {"gap": 0, "stagger": 0}}, "pace.rapid.gap"),
        ({"gap": 10_000, "burst": 5, "stagger": 2001}, "pace.stagger"),
        ({"rapid": {"stagger": 6001}}, "pace.rapid.stagger"),
    ],
    ids=str,
)
async def test_a_bad_pace_is_refused_and_nothing_changes(http: httpx.AsyncClient, pace: dict[str, Any], field: str) -> None:
    answer = await http.patch(MAIL, json={"pace": pace})
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field
    assert (await http.get("/api/v1/queues")).json()["queues"] in ([], [{**(await _queue(http)), "pace": None}])


async def _queue(http: httpx.AsyncClient) -> dict[str, Any]:
    found: list[dict[str, Any]] = (await http.get("/api/v1/queues")).json()["queues"]
    return found[0] if found else {}


async def test_the_figures_of_a_paced_queue(http: httpx.AsyncClient) -> None:
    await set_pace(http, **PACE)
    await add(http, queue="mail", delay=60_000)
    await add(http, queue="mail", delay=7_200_000)
    await add(http, queue="mail")
    shown = (await _queue(http))["pace"]
    assert (shown["totalDelayed"], shown["readyNow"], shown["readyInHour"], shown["waitingForGap"]) == (2, 0, 1, 0)
    assert (shown["mode"], shown["timeSinceLastReleaseSeconds"]) == ("normal", None)
    assert 50 < shown["nextReleaseInSeconds"] <= 60


async def test_all_queues_without_a_pace_get_one_over_http(http: httpx.AsyncClient) -> None:
    every = await http.patch("/api/v1/queues/*", json={"pace": {"gap": 180_000, "burst": 5}})
    assert (every.status_code, every.json()["name"]) == (200, "*")
    assert (every.json()["pace"]["gap"], every.json()["pace"]["inherited"]) == (180_000, False)
    assert (await http.get("/api/v1/queues/*")).json() == every.json()
    await add(http, queue="mail", delay=60_000)
    shown = (await http.get(MAIL)).json()["pace"]
    assert (shown["gap"], shown["burst"], shown["inherited"], shown["totalDelayed"]) == (180_000, 5, True, 1)
    assert (await http.patch(MAIL, json={"pace": None})).json()["pace"] is None
    listed = {queue["name"]: queue["pace"] for queue in (await http.get("/api/v1/queues")).json()["queues"]}
    assert listed == {"demora.actions": None, "demora.webhooks": None, "mail": None}
    problem(await http.patch("/api/v1/queues/*", json={"strict": True}), 422, "name")
    assert (await http.patch("/api/v1/queues/*", json={"pace": None})).json()["pace"] is None


async def test_why_says_what_a_job_waits_for(http: httpx.AsyncClient) -> None:
    later = await add(http, queue="mail", delay=60_000)
    told = (await http.get(f"{JOBS}/{later['id']}/why")).json()
    assert (told["reason"], set(told)) == ("not_due", {"reason", "sentence", "data"})
    assert told["data"]["dueAt"] == later["dueAt"]
    now = await add(http, queue="mail")
    assert (await http.get(f"{JOBS}/{now['id']}/why")).json()["reason"] == "no_worker"
    await http.post(f"{MAIL}/pause", json={"reason": "closed"})
    paused = (await http.get(f"{JOBS}/{now['id']}/why")).json()
    assert (paused["reason"], paused["data"]["pauseReason"]) == ("queue_paused", "closed")


async def test_there_is_no_why_for_no_job(http: httpx.AsyncClient) -> None:
    problem(await http.get(f"{JOBS}/{NO_SUCH_ID}/why"), 404)


async def test_a_spread_batch_is_due_evenly(http: httpx.AsyncClient, app: Demora) -> None:
    batch = {"jobs": [{"type": "demo.echo"}] * 4, "spread": 3_600_000}
    preview = await http.post(f"{JOBS}/batch", json={**batch, "preview": True})
    assert (preview.status_code, len(preview.json()["dueAt"]), await stored(app)) == (200, 4, 0)
    jobs = (await http.post(f"{JOBS}/batch", json=batch)).json()["jobs"]
    found = [await app.get(job["id"]) for job in jobs]
    assert [round((job.scheduled_at - job.created_at).total_seconds()) for job in found] == [0, 900, 1800, 2700]


async def test_a_spread_says_when_jobs_are_due_and_the_jobs_do_not(http: httpx.AsyncClient) -> None:
    batch = {"jobs": [{"type": "demo.echo"}, {"type": "demo.echo", "delay": 5}], "spread": 3_600_000}
    problem(await http.post(f"{JOBS}/batch", json=batch), 422, "jobs[1].delay")
    problem(await http.post(f"{JOBS}/batch", json={**batch, "jobs": batch["jobs"][:1], "spread": 0}), 422, "spread")


async def test_no_job_of_a_spread_batch_may_expire_before_it_is_due(http: httpx.AsyncClient) -> None:
    batch = {"jobs": [{"type": "demo.echo", "expiresIn": 60_000}] * 3, "spread": 3_600_000}
    problem(await http.post(f"{JOBS}/batch", json=batch), 422, "jobs[1].expiresIn")
    assert (await http.post(f"{JOBS}/batch", json={**batch, "spread": 30_000})).status_code == 201
