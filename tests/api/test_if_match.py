"""`ETag` and `If-Match`: a change applies to the job that its caller has read, or not at all."""

import asyncio

import httpx
import pytest

from demora import Demora
from tests.api.asking import JOBS, add, problem

LOW = {"priority": "LOW"}


async def tag_of(http: httpx.AsyncClient, path: str) -> str:
    return (await http.get(path)).headers["etag"]


async def test_a_change_with_the_tag_of_the_job_is_made_and_answers_the_next_tag(http: httpx.AsyncClient) -> None:
    path = f"{JOBS}/{(await add(http, delay=60_000))['id']}"
    tag = await tag_of(http, path)
    answer = await http.patch(path, json=LOW, headers={"if-match": tag})
    assert (answer.status_code, answer.json()["priority"]) == (200, "LOW")
    assert answer.headers["etag"] == await tag_of(http, path) != tag
    assert (answer.headers["etag"][0], answer.headers["etag"][-1]) == ('"', '"')


async def test_the_second_of_two_changes_with_one_tag_is_refused(http: httpx.AsyncClient) -> None:
    path = f"{JOBS}/{(await add(http, delay=60_000))['id']}"
    tag = await tag_of(http, path)
    changes = ({"tags": ["a"]}, {"tags": ["b"]}, {"delay": 5000})
    answers = await asyncio.gather(*(http.patch(path, json=change, headers={"if-match": tag}) for change in changes))
    [made] = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer is not made]
    assert [problem(answer, 412)["title"] for answer in refused] == ["Job changed"] * 2
    assert (await http.get(path)).json() == made.json()


@pytest.mark.parametrize("form", ["*", " * ", "{}", ' "other" , {}', '{},"other"'])
async def test_the_tag_may_be_one_of_several_or_any(http: httpx.AsyncClient, form: str) -> None:
    path = f"{JOBS}/{(await add(http, delay=60_000))['id']}"
    sent = form.format(await tag_of(http, path))
    assert (await http.patch(path, json=LOW, headers={"if-match": sent})).status_code == 200


@pytest.mark.parametrize("form", ["", '"other"', "W/{}", '"other", W/{}', "{}x", "x{}", '"', "no tag", '"a"{}'])
async def test_another_tag_changes_nothing(http: httpx.AsyncClient, form: str) -> None:
    job = await add(http, delay=60_000)
    path = f"{JOBS}/{job['id']}"
    problem(await http.patch(path, json=LOW, headers={"if-match": form.format(await tag_of(http, path))}), 412)
    assert (await http.get(path)).json() == job


async def test_a_job_that_has_run_has_another_tag_and_is_in_a_wrong_state(http: httpx.AsyncClient, app: Demora) -> None:
    path = f"{JOBS}/{(await add(http))['id']}"
    tag = await tag_of(http, path)
    async with app.worker():
        await app.wait(path.rpartition("/")[2])
    problem(await http.patch(path, json=LOW, headers={"if-match": tag}), 412)
    problem(await http.patch(path, json=LOW, headers={"if-match": await tag_of(http, path)}), 409)


async def test_a_replaced_job_has_another_tag(http: httpx.AsyncClient) -> None:
    asked = {"delay": 60_000, "unique": "u", "ifWaiting": "replace"}
    path = f"{JOBS}/{(await add(http, payload={'n': 1}, **asked))['id']}"
    tag = await tag_of(http, path)
    await add(http, payload={"n": 2}, **asked)
    problem(await http.patch(path, json=LOW, headers={"if-match": tag}), 412)
