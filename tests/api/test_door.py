"""Who may come in: the Host allow-list, and web pages of other sites."""

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.settings import Settings
from tests.api.asking import JOBS, problem, stored
from tests.api.conftest import BASE

OURS = ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:8080"]
OTHERS = [
    "evil.com",
    "evil.com:8080",
    "localhost.evil.com",
    "127.0.0.1.nip.io",
    "127.0.0.1@evil.com",
    "0.0.0.0",
    "",
    "[::1",
    "::1",
]


@pytest.mark.parametrize("host", OURS)
async def test_a_name_of_this_machine_is_served(http: httpx.AsyncClient, host: str) -> None:
    assert (await http.get("/health/live", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", [*OTHERS, "localhost:8080:1", "localhost:x", "localhost:", "127.0.0.2", "localhost, evil.com"]
)
async def test_any_other_name_is_refused_on_every_path(http: httpx.AsyncClient, host: str) -> None:
    for path in ("/", "/health/live", JOBS, "/nope"):
        problem(await http.get(path, headers={"host": host}), 421)


async def test_a_request_needs_exactly_one_host(http: httpx.AsyncClient) -> None:
    problem(await http.get("/", headers=[("host", "localhost"), ("host", "evil.com")]), 421)


@pytest.mark.parametrize("host", ["jobs.internal", "jobs.internal:443", "127.0.0.5", "other:81"])
async def test_the_bound_address_and_allowed_names_are_served(app: Demora, host: str) -> None:
    settings = Settings(host="127.0.0.5", allowed_hosts=("jobs.internal", " Other:81"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(make_api(app, settings)), base_url=BASE) as http:
        assert (await http.get("/", headers={"host": host})).status_code == 200
        problem(await http.get("/", headers={"host": "other:82"}), 421)


@pytest.mark.parametrize(("host", "named"), [("0.0.0.0", "0.0.0.0"), ("::", "[::]"), ("0.0.0.0", "jobs.internal")])
async def test_an_address_that_stands_for_all_is_no_name(app: Demora, host: str, named: str) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(make_api(app, Settings(host=host))), base_url=BASE) as http:
        assert (await http.get("/health/live")).status_code == 200
        told = problem(await http.get("/health/live", headers={"host": f"{named}:8080"}), 421)
        assert "DEMORA_ALLOWED_HOSTS" in told["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": BASE},
        {"origin": "http://evil.com"},
        {"origin": "http://localhost:9999"},
        {"origin": "null"},
        {"origin": "http://[evil"},
    ],
)
async def test_a_page_of_another_site_may_change_nothing(
    http: httpx.AsyncClient, app: Demora, headers: dict[str, str]
) -> None:
    problem(await http.post("/api/v1/queues/default/pause", headers=headers), 403)
    problem(await http.post(JOBS, json={"type": "demo.echo"}, headers=headers), 403)
    assert await stored(app) == 0
    assert (await http.get("/api/v1/queues")).json() == {"queues": [], "nextCursor": None}


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "same-origin", "origin": BASE}, {"origin": BASE}])
async def test_no_browser_and_pages_of_our_own_may(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await http.post(JOBS, json={"type": "demo.echo"}, headers=headers)).status_code == 201
