"""Queues and workers over HTTP."""

from typing import Any

import httpx
import pytest

from demora import Demora
from demora.core.access import Scope
from tests.api.asking import add, problem
from tests.api.keys import bearer, key_for

QUEUES = "/api/v1/queues"


async def test_queues_show_what_stands_where(http: httpx.AsyncClient, app: Demora) -> None:
    async with app.worker():
        dead = await add(http, "demo.fail", queue="a", maxRetries=0)
        await app.wait(dead["id"])
    await add(http, queue="a")
    await add(http, queue="a", delay=60_000)
    await add(http, queue="b")
    answer = await http.get(QUEUES)
    counts = {
        queue["name"]: [queue[name] for name in ("ready", "delayed", "processing", "dead")]
        for queue in answer.json()["queues"]
    }
    assert (answer.status_code, counts) == (200, {"a": [1, 1, 0, 1], "b": [1, 0, 0, 0]})


async def test_queues_come_by_name_page_by_page(http: httpx.AsyncClient) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in reversed(names):
        await add(http, queue=name)
    seen, cursor = [], ""
    while cursor is not None:
        page = (await http.get(f"{QUEUES}?limit=2{cursor and '&cursor=' + cursor}")).json()
        assert [queue["ready"] for queue in page["queues"]] == [1] * len(page["queues"])
        seen.append([queue["name"] for queue in page["queues"]])
        cursor = page["nextCursor"]
    assert seen == [names[:2], names[2:4], names[4:]]
    assert (await http.get(f"{QUEUES}?limit=5")).json()["nextCursor"] is None


@pytest.mark.parametrize(("query", "field"), [("limit=0", "limit"), ("limit=201", "limit"), ("cursor=%00", "cursor")])
async def test_a_page_of_queues_that_means_nothing_is_refused(http: httpx.AsyncClient, query: str, field: str) -> None:
    problem(await http.get(f"{QUEUES}?{query}"), 422, field)


async def test_a_queue_is_paused_with_a_reason_and_resumed(http: httpx.AsyncClient) -> None:
    await add(http, queue="mail")
    paused = (await http.post(f"{QUEUES}/mail/pause", json={"reason": "the server is down"})).json()
    assert (paused["paused"], paused["pauseReason"], paused["ready"]) == (True, "the server is down", 1)
    resumed = (await http.post(f"{QUEUES}/mail/resume")).json()
    assert (resumed["paused"], resumed["pausedAt"], resumed["pauseReason"]) == (False, None, None)


async def test_a_pause_has_the_name_of_the_key(http: httpx.AsyncClient, app: Demora) -> None:
    key = await key_for(app, Scope.ADMIN)
    await http.post(f"{QUEUES}/mail/pause", headers=bearer(key))
    [queue] = await (await app.open()).queues()
    assert queue.pause is not None
    assert queue.pause.by == "test"


async def test_one_queue_is_shown_as_in_the_list(http: httpx.AsyncClient) -> None:
    await add(http, queue="mail")
    await http.patch(f"{QUEUES}/mail", json={"pace": {"gap": 1000}})
    [listed] = (await http.get(QUEUES)).json()["queues"]
    answer = await http.get(f"{QUEUES}/mail")
    assert (answer.status_code, answer.json()) == (200, listed)
    assert listed["pace"]["gap"] == 1000


@pytest.mark.parametrize(("method", "path"), [("GET", "/mial"), ("POST", "/mial/resume")])
async def test_a_queue_that_nobody_named_is_not_found_and_stays_unnamed(
    http: httpx.AsyncClient, method: str, path: str
) -> None:
    told = problem(await http.request(method, QUEUES + path), 404)
    assert "there is no queue mial" in told["detail"]
    assert (await http.get(QUEUES)).json() == {"queues": [], "nextCursor": None}


async def test_a_queue_keeps_in_its_own_way_until_null_ends_that(http: httpx.AsyncClient) -> None:
    own = (await http.patch(f"{QUEUES}/mail", json={"keepCompleted": "1d", "keepFailed": "9"})).json()
    assert (own["keepCompleted"], own["keepCancelled"], own["keepFailed"]) == ("1d", None, "9")
    left = (await http.patch(f"{QUEUES}/mail", json={"keepCompleted": None})).json()
    assert (left["keepCompleted"], left["keepFailed"]) == (None, "9")
    assert (await http.patch(f"{QUEUES}/mail", json={"keepFailed": "general"})).json()["keepFailed"] is None


async def test_a_pause_needs_no_body(http: httpx.AsyncClient) -> None:
    answer = await http.post(f"{QUEUES}/new/pause")
    assert (answer.status_code, answer.json()["paused"], answer.json()["pauseReason"]) == (200, True, None)


async def test_the_order_of_a_queue_can_be_changed(http: httpx.AsyncClient) -> None:
    change = {"step": 5000, "strict": True, "headStart": 0}
    answer = await http.patch(f"{QUEUES}/mail", json=change)
    assert answer.status_code == 200
    assert {name: answer.json()[name] for name in change} == change
    assert (await http.patch(f"{QUEUES}/mail", json={"strict": False})).json() == {**answer.json(), "strict": False}


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PATCH", "/mail", {}, "body"),
        ("PATCH", "/mail", {"step": None}, "body"),
        ("PATCH", "/mail", {"keepFailed": "soon"}, "keepFailed"),
        ("GET", "/no spaces", None, "queue"),
        ("PATCH", "/mail", {"step": -1}, "step"),
        ("PATCH", "/mail", {"headStart": 2**70}, "headStart"),
        ("PATCH", "/mail", {"headStart": True}, "headStart"),
        ("PATCH", "/mail", {"strict": 1}, "strict"),
        ("PATCH", "/mail", {"paused": True}, "paused"),
        ("PATCH", "/no spaces", {"strict": True}, "queue"),
        ("POST", "/mail/pause", {"reason": ""}, "reason"),
        ("POST", "/mail/pause", {"reason": "x" * 501}, "reason"),
        ("POST", "/mail/pause", {"reason": "\0"}, "reason"),
        ("POST", "/mail/pause", {"why": "x"}, "why"),
        ("POST", "/mail/resume", {"reason": "x"}, "reason"),
        ("POST", f"/{'q' * 65}/pause", None, "queue"),
        ("POST", "/%00/resume", None, "queue"),
    ],
)
async def test_what_means_nothing_is_refused_and_names_no_queue(
    http: httpx.AsyncClient, method: str, path: str, body: Any, field: str
) -> None:
    problem(await http.request(method, QUEUES + path, json=body), 422, field)
    assert (await http.get(QUEUES)).json() == {"queues": [], "nextCursor": None}


async def test_live_workers_are_listed(http: httpx.AsyncClient, app: Demora) -> None:
    assert (await http.get("/api/v1/workers")).json() == {"workers": []}
    async with app.worker(concurrency=3):
        await app.wait((await add(http))["id"])
        [worker] = (await http.get("/api/v1/workers")).json()["workers"]
    assert (worker["slots"], worker["queues"]) == (3, [])
    assert "demo.echo" in worker["types"]
