"""`/api/v1/dead-letters`: listed, retried and deleted by filter, and never all of them by accident."""

from typing import Any

import httpx
import pytest

from demora import Demora
from tests.api.asking import JOBS, add, problem

DEAD = "/api/v1/dead-letters"


@pytest.fixture
async def dead(http: httpx.AsyncClient, app: Demora) -> dict[str, str]:
    """Three dead letters by name, and a job that still waits."""
    asked_for: dict[str, dict[str, Any]] = {"plain": {}, "mail": {"queue": "mail"}, "red": {"tags": ["red"]}}
    made = {name: (await add(http, "demo.fail", maxRetries=0, **asked))["id"] for name, asked in asked_for.items()}
    await add(http, delay=60_000)
    async with app.worker():
        for id in made.values():
            await app.wait(id)
    return made


async def listed(http: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await http.get(f"{DEAD}?{query}")
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


async def test_dead_letters_are_listed_newest_first_by_filter(http: httpx.AsyncClient, dead: dict[str, str]) -> None:
    assert await listed(http) == [dead["red"], dead["mail"], dead["plain"]]
    assert await listed(http, "queue=mail") == [dead["mail"]]
    assert await listed(http, "tag=red") == [dead["red"]]
    assert await listed(http, "type=demo.echo") == await listed(http, "olderThan=3600000") == []


@pytest.mark.parametrize("query", ["status=FAILED", "limit=201", "olderThan=-1", "cursor=x"])
async def test_a_list_that_means_nothing_is_refused(http: httpx.AsyncClient, query: str) -> None:
    problem(await http.get(f"{DEAD}?{query}"), 422)


def tally(matched: int, done: int, **others: bool) -> dict[str, Any]:
    return {"matched": matched, "done": done, "skipped": 0, "more": False, "dryRun": False, **others}


async def test_only_those_that_match_are_retried(http: httpx.AsyncClient, dead: dict[str, str]) -> None:
    answer = await http.post(f"{DEAD}/retry", json={"queue": "mail"})
    assert (answer.status_code, answer.json()) == (200, tally(1, 1))
    assert await listed(http) == [dead["red"], dead["plain"]]
    assert (await http.get(f"{JOBS}/{dead['mail']}")).json()["status"] == "QUEUED"


async def test_only_those_that_match_are_deleted(http: httpx.AsyncClient, dead: dict[str, str]) -> None:
    assert (await http.post(f"{DEAD}/delete", json={"tag": "red", "type": "demo.fail"})).json() == tally(1, 1)
    assert await listed(http) == [dead["mail"], dead["plain"]]
    assert (await http.get(f"{JOBS}/{dead['red']}")).status_code == 404


@pytest.mark.parametrize("verb", ["retry", "delete"])
async def test_a_dry_run_counts_and_changes_nothing(http: httpx.AsyncClient, dead: dict[str, str], verb: str) -> None:
    assert (await http.post(f"{DEAD}/{verb}", json={"all": True, "dryRun": True})).json() == tally(3, 0, dryRun=True)
    assert len(await listed(http)) == 3


@pytest.mark.parametrize("verb", ["retry", "delete"])
@pytest.mark.parametrize("body", [{}, {"all": False}, {"queue": None}, {"limit": 5}, {"dryRun": True}])
async def test_without_a_filter_all_must_be_asked_for(
    http: httpx.AsyncClient, dead: dict[str, str], verb: str, body: dict[str, Any]
) -> None:
    problem(await http.post(f"{DEAD}/{verb}", json=body), 422, "body")
    assert len(await listed(http)) == 3


async def test_an_empty_body_acts_on_nothing(http: httpx.AsyncClient, dead: dict[str, str]) -> None:
    problem(await http.post(f"{DEAD}/delete"), 422, "body")
    assert len(await listed(http)) == 3


async def test_a_limit_is_kept_and_says_that_there_are_more(http: httpx.AsyncClient, dead: dict[str, str]) -> None:
    assert (await http.post(f"{DEAD}/delete", json={"all": True, "limit": 2})).json() == tally(2, 2, more=True)
    assert await listed(http) == [dead["plain"]]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"all": True, "limit": 0}, "limit"),
    ({"all": True, "limit": 10_001}, "limit"),
    ({"olderThan": -1}, "olderThan"),
    ({"queue": "no spaces"}, "queue"),
    ({"type": "\0"}, "type"),
    ({"tag": ""}, "tag"),
    ({"status": "COMPLETED"}, "status"),
    ({"all": "yes"}, "all"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
async def test_a_request_that_means_nothing_is_refused(http: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    problem(await http.post(f"{DEAD}/delete", json=body), 422, field)
