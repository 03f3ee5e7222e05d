"""Signing in with an API key: the session, its cookie, its end, and the forms that nobody else can send."""

import re
from typing import Any

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.client.client import Client
from demora.core.access import Scope
from demora.core.job import Job
from demora.dashboard.asgi import ROUTES, dashboard, service_dashboard
from demora.dashboard.visit import Route
from demora.engines.sqlite import SqliteStore
from demora.errors import Invalid
from demora.runtime.front import Front
from demora.settings import Settings
from tests.clock import TestClock
from tests.dashboard.conftest import BASE, Browser, said
from tests.dashboard.lively import make_lively


async def key_of(client: Client, *scopes: Scope) -> str:
    return (await client.keys.create("ops", scopes or (Scope.ADMIN,))).text


async def test_without_any_key_a_loopback_service_asks_for_none(browser: Browser) -> None:
    assert (await browser.get("/dashboard")).status_code == 200


async def test_with_a_key_a_page_refreshes_to_the_sign_in_page(browser: Browser, client: Client) -> None:
    await key_of(client)
    answer = await browser.get("/dashboard/jobs?q=queue:mail")
    assert answer.status_code == 401
    there = "/dashboard/sign-in?next=%2Fdashboard%2Fjobs%3Fq%3Dqueue%3Amail"
    assert f'http-equiv="refresh" content="0; url={there}"' in answer.text
    assert "location" not in answer.headers


async def test_a_key_signs_in_and_returns_to_the_page(browser: Browser, client: Client) -> None:
    answer = await browser.sign_in(await key_of(client), "/dashboard/queues")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/queues")
    cookie = answer.headers["set-cookie"]
    assert re.match(r"demora_\w{8}=[\w-]{43}; Path=/dashboard; Max-Age=43200; HttpOnly; SameSite=Strict$", cookie)
    page = await browser.get("/dashboard/queues")
    assert page.status_code == 200
    assert "ops" in page.text
    again = await browser.get("/dashboard/sign-in?next=/dashboard/jobs")
    assert (again.status_code, again.headers["location"]) == (303, "/dashboard/jobs")


async def test_the_cookie_is_secure_under_https(browser: Browser, client: Client) -> None:
    await key_of(client)
    page = await browser.http.get("/dashboard/sign-in", headers={"x-forwarded-proto": "https"})
    assert page.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("there", ["//evil.example", "https://evil.example", "/else", "/dashboard\\evil", "/dashboardevil"])
async def test_sign_in_leads_to_no_other_place(browser: Browser, client: Client, there: str) -> None:
    answer = await browser.sign_in(await key_of(client), there)
    assert answer.headers["location"] == "/dashboard"


async def test_a_wrong_key_does_not_sign_in(browser: Browser, client: Client) -> None:
    right = await key_of(client)
    answer = await browser.sign_in(right[:-1] + ("a" if right[-1] != "a" else "b"))
    assert answer.status_code == 401
    assert "This key is not valid" in answer.text
    assert (await browser.get("/dashboard")).status_code == 401


@pytest.mark.parametrize(("overlap", "status"), [(None, 401), ("1h", 200)])
async def test_a_session_ends_with_the_secret_that_opened_it(
    browser: Browser, client: Client, overlap: str | None, status: int
) -> None:
    made = await client.keys.create("ops", (Scope.ADMIN,))
    await browser.sign_in(made.text)
    await client.keys.rotate(made.key.id, overlap=overlap)
    assert (await browser.get("/dashboard")).status_code == status


async def test_a_session_of_a_former_secret_ends_with_its_overlap(clock: TestClock) -> None:
    async with Demora(store=SqliteStore(clock=clock)) as app:
        keys = (await app.open()).keys
        former = await keys.create("ops", (Scope.ADMIN,))
        present = await keys.rotate(former.key.id, overlap="1h")
        tokens = [await keys.open_session(present.key, text) for text in (former.text, present.text)]
        assert (await keys.find_sessions(tokens)).keys.keys() == {*tokens}
        clock.turn(3600)
        assert (await keys.find_sessions(tokens)).keys.keys() == {tokens[1]}
        late = await keys.open_session(present.key, former.text)  # its overlap ended since it was accepted
        assert (await keys.find_sessions([late])).keys == {}


async def test_a_key_that_may_not_read_does_not_sign_in(browser: Browser, client: Client) -> None:
    answer = await browser.sign_in(await key_of(client, Scope.SUBMIT))
    assert answer.status_code == 403
    assert (await browser.get("/dashboard")).status_code == 401


async def test_tries_to_sign_in_are_limited(app: Demora, client: Client) -> None:
    await key_of(client)
    limited = Front(make_api(app, Settings()), service_dashboard(app, Settings(failed_auth_rate=1)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url=BASE) as http:
        statuses = [(await Browser(http).sign_in("dmr_wrong")).status_code for _ in range(20)]
    assert statuses[0] == 401
    assert 429 in statuses


async def test_a_session_dies_with_its_key(browser: Browser, client: Client) -> None:
    made = await client.keys.create("ops", [Scope.ADMIN])
    await client.keys.create("other", [Scope.ADMIN])
    await browser.sign_in(made.text)
    assert (await browser.get("/dashboard")).status_code == 200
    await client.keys.revoke(made.key.id)
    assert (await browser.get("/dashboard")).status_code == 401
    refused = await browser.live("/dashboard")
    assert (refused.status_code, refused.headers["hx-redirect"]) == (401, "/dashboard/sign-in?next=%2Fdashboard")


async def test_signing_out_ends_the_session(browser: Browser, client: Client) -> None:
    await browser.sign_in(await key_of(client))
    cookies = dict(browser.http.cookies)
    page = (await browser.get("/dashboard")).text
    token = re.search(r'name="token" value="(\w+)"', page)
    assert token
    headers = {"sec-fetch-site": "same-origin"}
    answer = await browser.http.post("/dashboard/sign-out", data={"token": token[1]}, headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")
    browser.http.cookies.update(cookies)
    stolen = await browser.get("/dashboard")
    assert stolen.status_code == 401


# Forms


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
    ],
)
async def test_a_form_of_another_site_is_refused(browser: Browser, client: Client, headers: dict[str, str]) -> None:
    await client.enqueue("demo.echo", queue="mail")
    page = (await browser.get("/dashboard")).text
    token = re.search(r'"X-Demora-Token": "(\w+)"', page)
    assert token
    sent = {"x-demora-token": token[1], **headers}
    answer = await browser.http.post("/dashboard/queues/mail/pause", data={}, headers=sent)
    assert answer.status_code == 403
    assert (await client.queue("mail")).pause is None


async def test_a_form_needs_the_token_of_its_page(browser: Browser, client: Client) -> None:
    await client.enqueue("demo.echo", queue="mail")
    await browser.get("/dashboard")
    for token in ("", "0" * 64, "é"):
        assert (await browser.post("/dashboard/queues/mail/pause", token)).status_code == 403
    assert (await client.queue("mail")).pause is None
    assert (await browser.act("/dashboard/queues/mail/pause", reason="no")).status_code == 204
    assert (await client.queue("mail")).pause is not None


async def test_a_form_is_accepted_by_its_origin_where_a_browser_says_nothing_else(browser: Browser, client: Client) -> None:
    await client.enqueue("demo.echo", queue="mail")
    page = (await browser.get("/dashboard")).text
    token = re.search(r'"X-Demora-Token": "(\w+)"', page)
    assert token
    sent = {"x-demora-token": token[1], "origin": BASE}
    assert (await browser.http.post("/dashboard/queues/mail/pause", data={}, headers=sent)).status_code == 204


# Scopes


GUARDED = [route for route in ROUTES if route.scope is not Scope.READ]


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
async def test_a_key_without_the_scope_of_a_route_is_refused(browser: Browser, client: Client, route: Route) -> None:
    await browser.sign_in(await key_of(client, Scope.READ))
    path = "/dashboard" + re.sub(r"\{\w+\}", "x", route.path)
    answer = await (browser.get(path) if route.method == "GET" else browser.act(path))
    assert answer.status_code == 403


async def test_every_route_that_changes_something_is_no_get(browser: Browser) -> None:
    assert {route.method for route in ROUTES} == {"GET", "POST"}
    assert all(route.scope is not Scope.READ for route in ROUTES if route.method == "POST")


async def test_buttons_follow_the_scope(browser: Browser, client: Client) -> None:
    await client.enqueue("demo.echo", queue="mail")
    await browser.sign_in(await key_of(client, Scope.READ))
    page = (await browser.get("/dashboard/queues")).text
    assert "mail" in page
    assert "hx-post" not in page


async def test_what_an_action_does_is_recorded_under_the_name_of_the_key(
    browser: Browser, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "demora")
    job = await client.enqueue("demo.echo", delay="1h")
    await browser.sign_in(await key_of(client, Scope.OPERATE))
    assert said(await browser.act(f"/dashboard/jobs/{job.id}/cancel"))["words"] == "Cancelled."
    assert f"ops: cancel {job.id}" in caplog.text
    await browser.act("/dashboard/queues/default/pause", reason="no")
    pause = (await client.queue("default")).pause
    assert pause is not None
    assert (pause.by, pause.reason) == ("ops", "no")


# Of each route that changes something: a path, in which names stand for jobs, and a form.
CHANGES: dict[str, tuple[str, dict[str, str]]] = {
    "/first-minute": ("first-minute", {}),
    "/jobs/new": ("jobs/new", {"type": "demo.echo"}),
    "/jobs/{id}/cancel": ("jobs/{scheduled}/cancel", {}),
    "/jobs/{id}/undo-cancel": ("jobs/{cancelled}/undo-cancel", {}),
    "/jobs/{id}/retry": ("jobs/{failed}/retry", {}),
    "/jobs/{id}/delete": ("jobs/{failed}/delete", {}),
    "/jobs/{id}/reschedule": ("jobs/{scheduled}/reschedule", {"delay": "2h"}),
    "/jobs/{id}/redeliver": ("jobs/{told}/redeliver", {}),
    "/actions/{verb}": ("actions/retry", {"q": "status:failed"}),
    "/queues/{name}/pause": ("queues/mail/pause", {"reason": "no"}),
    "/queues/{name}/resume": ("queues/media/resume", {}),
    "/queues/{name}/pace": ("queues/mail/pace", {"gap": "2m", "burst": "3", "stagger": "20s"}),
    "/queues/{name}/pace/off": ("queues/newsletter/pace/off", {}),
    "/schedules/{name}/trigger": ("schedules/invoices/trigger", {}),
    "/schedules/{name}/pause": ("schedules/invoices/pause", {"reason": "no"}),
    "/schedules/{name}/resume": ("schedules/weekly-digest/resume", {}),
    "/schedules/{name}/change": ("schedules/invoices/change", {"cron": "0 4 * * *"}),
    "/system/enable": ("system/enable", {"url": "https://shop.example/hook"}),
    "/system/redeliver": ("system/redeliver", {"host": "old.partner.example"}),
    "/system/recover": ("system/recover", {}),
}
CHANGES_NOTHING = {"/system/line/compare"}


def test_every_route_that_changes_something_is_among_those_that_are_recorded() -> None:
    assert {route.path for route in ROUTES if route.method == "POST"} == CHANGES.keys() | CHANGES_NOTHING


@pytest.mark.parametrize("route", CHANGES)
async def test_every_action_is_recorded_under_the_name_of_the_key(
    browser: Browser, client: Client, caplog: pytest.LogCaptureFixture, route: str
) -> None:
    caplog.set_level("INFO", "demora")
    path, form = CHANGES[route]
    named = await make_lively(client)
    named["told"] = (await client.find('"invoice 2041"')).jobs[0].id
    await client.webhooks.disable("https://shop.example/hook", "410 Gone")
    await browser.sign_in(await key_of(client))
    answer = await browser.act(f"/dashboard/{path.format(**named)}", **form)
    assert answer.status_code in (200, 204), answer.text
    assert re.search(r"^ops: \w", "\n".join(record.getMessage() for record in caplog.records), re.MULTILINE)


# Mounted in another application


async def test_a_mounted_dashboard_refuses_a_malformed_origin(app: Demora) -> None:
    mounted = httpx.ASGITransport(dashboard(app, access=lambda _: Scope.ADMIN))
    async with httpx.AsyncClient(transport=mounted, base_url="http://shop.example") as http:
        answer = await http.post("/first-minute", headers={"origin": "http://["})
    assert answer.status_code == 403


async def test_a_mounted_dashboard_always_asks_for_a_key(app: Demora) -> None:
    mounted = httpx.ASGITransport(dashboard(app, access="keys"), root_path="/a/b")
    async with httpx.AsyncClient(transport=mounted, base_url="http://shop.example") as http:
        answer = await http.get("/a/b/jobs")
    assert answer.status_code == 401
    assert "url=/a/b/sign-in?next=%2Fa%2Fb%2Fjobs" in answer.text


async def test_a_mounted_dashboard_asks_its_host(app: Demora, client: Client) -> None:
    async def access(request: object) -> Scope | None:
        return {"ann": Scope.READ, "bob": Scope.OPERATE}.get(request.headers.get("x-user", ""))  # type: ignore[attr-defined]

    await client.enqueue("demo.echo", queue="mail")
    mounted = httpx.ASGITransport(dashboard(app, access=access), root_path="/a/b")
    async with httpx.AsyncClient(transport=mounted, base_url="http://shop.example") as http:
        assert (await http.get("/a/b/queues")).status_code == 403
        page = await http.get("/a/b/queues", headers={"x-user": "ann"})
        assert page.status_code == 200
        assert "Path=/a/b;" in page.headers["set-cookie"]
        links = re.findall(r'(?:href|src|action|hx-get|hx-post)="([^"#]+)"', page.text)
        assert links
        assert all(link.startswith("/a/b") for link in links)
        assert "hx-post" not in page.text
        page = await http.get("/a/b/queues", headers={"x-user": "bob"})
        assert 'hx-get="/a/b/queues/mail/pause"' in page.text


async def test_a_host_may_name_its_users(app: Demora, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "demora")
    job = await client.enqueue("demo.echo", queue="mail", delay="1h")
    mounted = dashboard(app, access=lambda request: (Scope.ADMIN, request.headers.get("x-user", "")))
    transport = httpx.ASGITransport(mounted, root_path="/a/b")
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.example", headers={"x-user": "bob"}) as http:
        token = re.search(r'"X-Demora-Token": "(\w+)"', (await http.get("/a/b/queues")).text)
        assert token
        sent = {"x-demora-token": token[1], "sec-fetch-site": "same-origin"}
        await http.post("/a/b/queues/mail/pause", data={}, headers=sent)
        await http.post("/a/b/queues/mail/pace", data={"gap": "1m", "burst": "2"}, headers=sent)
        await http.post(f"/a/b/jobs/{job.id}/cancel", data={}, headers=sent)
        started = await http.post("/a/b/actions/delete", data={"q": "status:cancelled"}, headers=sent)
    pause, pacing = (await client.queue("mail")).pause, await client.pacing("mail")
    assert pause is not None
    assert pacing is not None
    assert (pause.by, pacing.set_by) == ("bob", "bob")
    assert f"bob: cancel {job.id}" in caplog.text
    assert "bob: set pace mail" in caplog.text
    id = started.headers["hx-redirect"].rpartition("/")[2]
    assert (await client.actions.get(id)).order.by == "bob"


async def test_a_hook_redacts_what_is_shown_downloaded_and_copied(app: Demora, client: Client) -> None:
    def redact(job: Job, field: str, value: Any) -> Any:
        assert (job.type, field) == ("demo.echo", "payload")
        return {**value, "card": "redacted"}

    job = await client.enqueue("demo.echo", {"card": "4111-canary", "to": "ann"}, delay="1h")
    mounted = dashboard(app, access=lambda request: Scope.ADMIN, redact=redact)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(mounted), base_url="http://shop.example") as http:
        for path in (f"/jobs/{job.id}/show/payload", f"/jobs/{job.id}/download/payload", f"/jobs/new?copy={job.id}"):
            text = (await http.get(path)).text
            assert "4111-canary" not in text, path
            assert "redacted" in text, path
            assert "ann" in text, path


def test_a_mounted_dashboard_must_be_told_who_may_see_it(app: Demora) -> None:
    with pytest.raises(Invalid, match="access"):
        dashboard(app, access=None)  # type: ignore[arg-type]
