"""`GET /api/v1/jobs`: filters, pages, and what it refuses."""

import httpx
import pytest

from demora import Demora
from demora.errors import Invalid
from tests.api.asking import JOBS, NO_SUCH_ID, add, problem


async def ids(http: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await http.get(f"{JOBS}?{query}")
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


async def test_jobs_come_newest_first_page_by_page(http: httpx.AsyncClient) -> None:
    added = [(await add(http))["id"] for _ in range(5)]
    seen, cursor = [], ""
    while cursor is not None:
        page = (await http.get(f"{JOBS}?limit=2{cursor and '&cursor=' + cursor}")).json()
        assert len(page["jobs"]) <= 2
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["nextCursor"]
    assert seen == added[::-1]


async def test_an_empty_list_has_no_next_page(http: httpx.AsyncClient) -> None:
    assert (await http.get(JOBS)).json() == {"jobs": [], "nextCursor": None, "complete": True}


async def test_jobs_are_found_by_queue_type_and_tag(http: httpx.AsyncClient) -> None:
    mail = await add(http, queue="mail")
    tagged = await add(http, tags=["red & blue", "x"])
    failing = await add(http, "demo.fail")
    assert await ids(http, "queue=mail") == [mail["id"]]
    assert await ids(http, "tag=red%20%26%20blue") == [tagged["id"]]
    assert await ids(http, "type=demo.fail") == [failing["id"]]
    assert await ids(http, "type=demo.fail&queue=mail") == []


@pytest.mark.parametrize("query", ["status=FAILED,CANCELLED", "status=FAILED&status=CANCELLED"])
async def test_statuses_are_repeated_or_separated_by_commas(http: httpx.AsyncClient, app: Demora, query: str) -> None:
    waiting, cancelled = await add(http, delay=60_000), await add(http, delay=60_000)
    await http.post(f"{JOBS}/{cancelled['id']}/cancel")
    async with app.worker():
        failed = await add(http, "demo.fail", maxRetries=0)
        await app.wait(failed["id"])
    assert await ids(http, query) == [failed["id"], cancelled["id"]]
    assert await ids(http, "status=QUEUED") == [waiting["id"]]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        (f"limit={'9' * 30}", "limit"),
        ("limit=-1", "limit"),
        ("limit=5&limit=6", "limit"),
        ("status=DONE", "status"),
        ("status=", "status"),
        ("status=failed", "status"),
        ("status=QUEUED,", "status"),
        ("queue=no%20spaces", "queue"),
        ("queue=%00", "queue"),
        ("type=%00", "type"),
        ("tag=%00", "tag"),
        ("tag=", "tag"),
        (f"tag={'t' * 65}", "tag"),
        ("error=", "error"),
        ("error=%00", "error"),
        ("text=%00", "text"),
        (f"text={'t' * 201}", "text"),
        ("priority=URGENT", "priority"),
        ("createdSince=yesterday", "createdSince"),
        ("createdSince=2026-03-01T00:00:00", "created"),
        ("createdSince=2026-03-02T00:00:00Z&createdUntil=2026-03-01T00:00:00Z", "created"),
        ("status=FAILED&dueUntil=2026-03-01T00:00:00Z", "due"),
        ("search=status:lost", "status"),
        ("search=queue:a&queue=a", "search"),
        ("sort=size", "sort"),
        ("status=FAILED&sort=due", "sort"),
        ("count=some", "count"),
        ("cursor=next", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=%00", "cursor"),
        (f"cursor={NO_SUCH_ID}0", "cursor"),
        ("page=2", "page"),
        ("fields=log", "fields"),
        ("fields=", "fields"),
        ("fields=payload,", "fields"),
        ("status=QUEUED&Queue=x", "Queue"),
    ],
)
async def test_a_query_that_means_nothing_is_refused(http: httpx.AsyncClient, query: str, field: str) -> None:
    problem(await http.get(f"{JOBS}?{query}"), 422, field)


@pytest.mark.parametrize("path", [f"{JOBS}?page=2", f"{JOBS}/{NO_SUCH_ID}?page=2", "/api/v1/queues?page=2"])
async def test_an_unknown_parameter_is_called_one(http: httpx.AsyncClient, path: str) -> None:
    assert problem(await http.get(path), 422, "page")["detail"] == "page: is not a known parameter"


async def test_an_unknown_parameter_is_not_repeated_at_length(http: httpx.AsyncClient) -> None:
    problem(await http.get(f"{JOBS}?{'x' * 5000}=1"), 422, "x" * 100)


async def test_a_list_shows_all_of_a_job_but_its_log_and_what_is_not_asked_for(http: httpx.AsyncClient) -> None:
    job = await add(http, payload={"a": 1})
    [listed] = (await http.get(f"{JOBS}?fields=payload,result")).json()["jobs"]
    assert {**listed, "log": []} == (await http.get(f"{JOBS}/{job['id']}")).json() == job
    assert "log" not in listed
    for query, left_out in (("", {"payload", "result"}), ("?fields=payload", {"result"}), ("?fields=result", {"payload"})):
        [shown] = (await http.get(JOBS + query)).json()["jobs"]
        assert shown == {name: value for name, value in listed.items() if name not in left_out}
    batch = await http.post(f"{JOBS}/batch", json={"jobs": [{"type": "demo.echo"}]})
    assert "log" not in batch.json()["jobs"][0]


@pytest.mark.parametrize("query", ["tag=%ff", "tag=%ed%a0%80", "&".join(["status=QUEUED"] * 101)])
async def test_a_query_that_cannot_be_read_is_refused(http: httpx.AsyncClient, query: str) -> None:
    problem(await http.get(f"{JOBS}?{query}"), 400)


@pytest.mark.parametrize(
    "filters",
    [
        {"after": "next"},
        {"tag": "\0"},
        {"tag": "\ud800"},
        {"queue": "a b"},
        {"type": "\0"},
        {"status": ["DONE"]},
        {"limit": 201},
    ],
)
async def test_the_python_client_refuses_the_same_filters(app: Demora, filters: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        await app.find(**filters)


async def test_a_list_has_all_filters_as_parameters_and_as_a_search(http: httpx.AsyncClient) -> None:
    wanted = {"type": "email.send", "queue": "mail", "priority": "HIGH", "tags": ["vip", "eu"], "name": "Say hello"}
    job = (await http.post(JOBS, json=wanted)).json()
    for other in ({"type": "sms.send"}, {"queue": "default"}, {"priority": "LOW"}, {"tags": ["vip"]}, {"name": "x"}):
        await http.post(JOBS, json=wanted | other)
    parts = "type=email.*&queue=mail&priority=HIGH&tag=vip&tag=eu&text=HELLO&status=QUEUED"
    words = "type:email.* queue:mail priority:high tag:vip tag:eu text:HELLO status:queued created:<1h"
    for query in (f"{parts}&createdSince=2000-01-01T00:00:00Z&dueSince=2000-01-01T00:00:00Z", f"search={words}"):
        listed = (await http.get(f"{JOBS}?{query}&count=exact")).json()
        assert [one["id"] for one in listed["jobs"]] == [job["id"]]
        assert (listed["count"], listed["countComplete"], listed["complete"]) == (1, True, True)


async def test_waiting_jobs_are_listed_by_when_they_are_due_and_the_order_can_be_chosen(http: httpx.AsyncClient) -> None:
    ids = [(await http.post(JOBS, json={"type": "a", "delay": delay})).json()["id"] for delay in (9000, 1000, 5000)]

    async def listed(query: str) -> list[str]:
        found, cursor = [], ""
        while True:
            page = (await http.get(f"{JOBS}?limit=1&{query}{cursor}")).json()
            found += [ids.index(job["id"]) for job in page["jobs"]]
            if page["nextCursor"] is None:
                return found
            cursor = f"&cursor={page['nextCursor']}"

    assert await listed("status=QUEUED") == await listed("sort=due") == [1, 2, 0]
    assert await listed("") == await listed("status=QUEUED&sort=created") == [2, 1, 0]
