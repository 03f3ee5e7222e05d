"""What the service says of itself."""

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.settings import Settings
from tests.api.asking import JOBS, add, problem
from tests.api.conftest import BASE


async def test_the_first_page_says_what_this_is_and_where_to_look(http: httpx.AsyncClient) -> None:
    page = (await http.get("/")).json()
    assert page["name"] == "demora"
    for place in ("jobs", "openapi", "health"):
        assert (await http.get(page[place])).status_code == 200


async def test_a_process_that_answers_is_alive(http: httpx.AsyncClient) -> None:
    answer = await http.get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


async def test_no_live_worker_is_degraded_and_still_200(http: httpx.AsyncClient) -> None:
    answer = await http.get("/health/ready")
    assert (answer.status_code, answer.json()["status"], answer.json()["workers"]) == (200, "degraded", 0)
    assert "demora worker" in answer.json()["reason"]


async def test_a_live_worker_is_healthy(http: httpx.AsyncClient, app: Demora) -> None:
    async with app.worker():
        await app.wait((await add(http))["id"])
        answer = await http.get("/health/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy", "reason": None, "workers": 1, "notes": []})


async def test_a_store_that_does_not_answer_is_unhealthy_and_a_503(caplog: pytest.LogCaptureFixture) -> None:
    url = "sqlite:////no/such/folder/secret.db"
    api = make_api(Demora(url), Settings(database_url=url))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=BASE) as http:
        answer = await http.get("/health/ready")
        assert (answer.status_code, answer.json()["status"]) == (503, "unhealthy")
        told = problem(await http.get(JOBS), 503)
        assert (await http.get("/health/live")).status_code == 200
    assert "secret" not in answer.text + str(told) + caplog.text
    assert "GET /api/v1/jobs failed: StoreError" in caplog.text
