"""The API mounted in another application: its links, and who may use it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from demora import Demora
from demora.api import api
from demora.api.routes import ROUTES
from demora.core.access import Scope
from demora.errors import Invalid
from tests.api.asking import problem
from tests.api.keys import bearer, key_for

Q = "/a/b"
JOB = {"type": "demo.echo", "payload": {"a": 1}}


def calling(mounted: Any, host: str = "shop.example") -> httpx.AsyncClient:
    web = Starlette(routes=[Mount(Q, mounted)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url=f"http://{host}")


def staff(request: Request) -> Scope | None:
    """A host application that knows its users by a header."""
    user = request.headers.get("x-user")
    return None if user is None else Scope(user)


@pytest.fixture
async def http(app: Demora) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(api(app, access=staff)) as http:
        yield http


async def test_links_lead_to_where_it_is_mounted(http: httpx.AsyncClient) -> None:
    http.headers["x-user"] = "admin"
    welcome = (await http.get(f"{Q}/")).json()
    assert (await http.get(welcome["jobs"])).status_code == 200
    document = (await http.get(welcome["openapi"])).json()
    assert document["servers"] == [{"url": Q}]
    assert (await http.get(welcome["health"])).status_code == 200
    added = await http.post(f"{Q}/api/v1/jobs", json=JOB)
    assert added.headers["location"] == f"{Q}/api/v1/jobs/{added.json()['id']}"
    assert (await http.get(added.headers["location"])).json()["id"] == added.json()["id"]
    acted = await http.post(f"{Q}/api/v1/jobs/actions", json={"action": "cancel", "filter": {"type": "demo.echo"}})
    assert acted.headers["location"].startswith(f"{Q}/api/v1/jobs/actions/"), acted.text
    assert (await http.get(acted.headers["location"])).status_code == 200
    assert (await http.get(f"{Q}/docs")).status_code == 200


async def test_a_service_names_no_server(app: Demora) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api(app, access=staff)), base_url="http://x") as http:
        assert "servers" not in (await http.get("/api/v1/openapi.json", headers={"x-user": "read"})).json()


async def test_the_names_of_its_host_are_its_own(app: Demora) -> None:
    for host in ("shop.example", "10.0.0.7:8443", "[fe80::1]"):
        async with calling(api(app, access=staff), host) as http:
            assert (await http.get(f"{Q}/api/v1/jobs", headers={"x-user": "read"})).status_code == 200


@pytest.mark.parametrize("route", [one for one in ROUTES if one.scope], ids=lambda route: f"{route.method} {route.path}")
async def test_its_host_decides_about_every_route(http: httpx.AsyncClient, route: Any) -> None:
    path = Q + route.path.format(id="x", name="x", workerId="x")
    assert problem(await http.request(route.method, path), 403)["title"] == "Not allowed by the application"
    weak = "submit" if route.scope is not Scope.SUBMIT else "work"
    refused = problem(await http.request(route.method, path, headers={"x-user": weak}), 403)
    assert refused["detail"].startswith(f"this needs the scope {route.scope}")


async def test_a_caller_who_may_only_submit_does_not_see_the_job(http: httpx.AsyncClient) -> None:
    added = await http.post(f"{Q}/api/v1/jobs", json=JOB, headers={"x-user": "submit"})
    assert added.status_code == 201
    assert "payload" not in added.json()
    batch = await http.post(f"{Q}/api/v1/jobs/batch", json={"jobs": [JOB]}, headers={"x-user": "submit"})
    assert "payload" not in batch.json()["jobs"][0]


async def test_health_needs_nothing(http: httpx.AsyncClient) -> None:
    assert (await http.get(f"{Q}/health/live")).status_code == 200


async def test_a_page_of_another_site_cannot_use_the_cookies_of_the_host(http: httpx.AsyncClient) -> None:
    for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "http://evil.example"}):
        answer = await http.post(f"{Q}/api/v1/recover", headers={"x-user": "admin", **headers})
        assert problem(answer, 403)["title"] == "Cross-site request"
    for headers in ({"sec-fetch-site": "same-origin"}, {"origin": "http://shop.example"}, {}):
        assert (await http.post(f"{Q}/api/v1/recover", headers={"x-user": "admin", **headers})).status_code == 200


async def test_the_host_may_decide_asynchronously(app: Demora) -> None:
    async def decide(request: Request) -> Scope | None:
        return staff(request)

    async with calling(api(app, access=decide)) as http:
        assert (await http.get(f"{Q}/api/v1/jobs")).status_code == 403
        assert (await http.get(f"{Q}/api/v1/jobs", headers={"x-user": "read"})).status_code == 200


async def test_the_host_may_give_several_scopes(app: Demora) -> None:
    async with calling(api(app, access=lambda request: {Scope.SUBMIT, Scope.READ})) as http:
        added = await http.post(f"{Q}/api/v1/jobs", json=JOB)
        assert added.json()["payload"] == JOB["payload"]
        assert (await http.get(added.headers["location"])).status_code == 200
        assert (await http.delete(added.headers["location"])).status_code == 403


@pytest.mark.parametrize("scopes", [Scope.ADMIN, {Scope.OPERATE, Scope.SUBMIT}, (Scope.OPERATE, Scope.SUBMIT)])
async def test_the_host_may_name_the_user(app: Demora, scopes: Any) -> None:
    async with calling(api(app, access=lambda request: (scopes, "ann"))) as http:
        await http.post(f"{Q}/api/v1/jobs", json=JOB)
        asked = await http.post(f"{Q}/api/v1/jobs/actions", json={"action": "cancel", "all": True})
    assert asked.status_code == 202
    job = await (await app.open()).get(asked.json()["id"])
    assert job.payload["by"] == "ann"


async def test_a_user_whose_name_is_that_of_a_scope_gets_no_more(app: Demora) -> None:
    async with calling(api(app, access=lambda request: (Scope.READ, "admin"))) as http:
        assert (await http.get(f"{Q}/api/v1/jobs")).status_code == 200
        assert (await http.post(f"{Q}/api/v1/jobs", json=JOB)).status_code == 403


async def test_a_host_that_fails_lets_nobody_in(app: Demora) -> None:
    def decide(request: Request) -> Scope | None:
        raise RuntimeError("hunter2")

    async with calling(api(app, access=decide)) as http:
        assert "hunter2" not in (answer := await http.get(f"{Q}/api/v1/jobs")).text
        assert answer.status_code == 500


async def test_with_keys_every_request_needs_one_even_while_there_is_none(app: Demora) -> None:
    async with calling(api(app, access="keys"), "127.0.0.1:8000") as http:
        assert (await http.get(f"{Q}/api/v1/jobs")).status_code == 401
        key = await key_for(app, Scope.READ)
        assert (await http.get(f"{Q}/api/v1/jobs")).status_code == 401
        assert (await http.get(f"{Q}/api/v1/jobs", headers=bearer(key))).status_code == 200
        assert problem(await http.post(f"{Q}/api/v1/jobs", json=JOB, headers=bearer(key)), 403)


async def test_a_listener_does_not_keep_the_server_from_stopping(app: Demora) -> None:
    heard, began = list[int](), asyncio.Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    headers = [(b"host", b"shop.example"), (b"x-user", b"read")]
    scope = {"type": "http", "method": "GET", "path": "/api/v1/events", "query_string": b"", "headers": headers}

    async def send(message: Any) -> None:
        began.set()

    try:
        async with asyncio.timeout(60):
            listening = asyncio.ensure_future(api(app, access=staff)(scope, asyncio.Event().wait, send))
            await began.wait()
            signal.raise_signal(signal.SIGTERM)
            await listening
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


@pytest.mark.parametrize("access", [None, "", "key", Scope.READ, True])
def test_it_must_be_told_who_may_use_it(app: Demora, access: Any) -> None:
    with pytest.raises(Invalid, match="access"):
        api(app, access=access)
