"""The service below a path: links, redirects, cookies and the API, behind a real nginx and Caddy, and in a browser."""

import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import expect

from demora import Demora
from demora.api import make_api
from demora.client.client import Client
from demora.core.access import Scope
from demora.dashboard.asgi import service_dashboard
from demora.errors import BadSetting
from demora.runtime.front import Front
from demora.settings import Settings, load
from tests.dashboard.chromium import chromium, serving, watched
from tests.dashboard.conftest import Browser
from tests.servers import pooling

HTML = {"accept": "text/html"}


def front(app: Demora, root: str) -> Front:
    settings = Settings(database_url="sqlite://", root_path=root)
    return Front(make_api(app, settings), service_dashboard(app, settings), root_path=root)


@pytest.mark.parametrize("sent", ["/tools/jobs", ""], ids=["kept", "stripped"])
async def test_links_and_redirects_begin_with_the_root_path(app: Demora, client: Client, sent: str) -> None:
    await client.enqueue("demo.echo", queue="mail")
    transport = httpx.ASGITransport(front(app, "/tools/jobs"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
        there = await http.get(f"{sent}/", headers=HTML)
        assert (there.status_code, there.headers["location"]) == (303, "/tools/jobs/dashboard")
        page = await http.get(f"{sent}/dashboard/queues", headers=HTML)
        assert page.status_code == 200
        links = re.findall(r'(?:href|src|action|hx-get|hx-post)="([^"#]+)"', page.text)
        assert links
        assert all(link.startswith("/tools/jobs/dashboard") for link in links), links
        assert "Path=/tools/jobs/dashboard;" in page.headers["set-cookie"]
        added = await http.post(f"{sent}/api/v1/jobs", json={"type": "demo.echo"})
        assert added.headers["location"].startswith("/tools/jobs/api/v1/jobs/")
        assert (await http.get(f"{sent}/")).json()["jobs"] == "/tools/jobs/api/v1/jobs"


async def test_signing_in_below_a_path_returns_to_the_page(app: Demora, client: Client) -> None:
    made = await client.keys.create("ops", [Scope.ADMIN])
    transport = httpx.ASGITransport(front(app, "/tools"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
        asked = await http.get("/dashboard/jobs?q=queue:mail", headers=HTML)
        assert "url=/tools/dashboard/sign-in?next=%2Ftools%2Fdashboard%2Fjobs" in asked.text
        page = await http.get("/tools/dashboard/sign-in?next=/tools/dashboard/jobs", headers=HTML)
        token = re.search(r'name="token" value="(\w+)"', page.text)
        assert token
        form = {"key": made.text, "token": token[1]}
        answer = await http.post(
            "/tools/dashboard/sign-in?next=/tools/dashboard/jobs", data=form, headers={"sec-fetch-site": "same-origin"}
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/tools/dashboard/jobs")


@pytest.mark.parametrize("path", ["jobs", "/jobs/", "/a b", "/api", "/api/x", "/dashboard", "/a//b", "/<x>"])
def test_a_root_path_that_cannot_work_is_refused(path: str) -> None:
    with pytest.raises(BadSetting, match="DEMORA_ROOT_PATH"):
        load({"DEMORA_ROOT_PATH": path})


def test_a_root_path_may_have_several_parts() -> None:
    assert load({"DEMORA_ROOT_PATH": "/tools/jobs-2"}).root_path == "/tools/jobs-2"
    assert load({}, root_path="/apis").root_path == "/apis"


@pytest.fixture(params=list(pooling.BELOW_A_PATH))
def program(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        (pytest.fail if os.environ.get("CI") and request.param == "nginx" else pytest.skip)(f"there is no {request.param}")
    return str(request.param)


@pytest.fixture(params=["/kept", "/stripped"])
async def site(request: pytest.FixtureRequest, app: Demora, program: str, tmp_path: Path) -> AsyncIterator[str]:
    async with serving(front(app, request.param)) as server:
        port = int(server.rpartition(":")[2])
        with pooling.real(program, port, tmp_path, pooling.BELOW_A_PATH[program]) as listening:
            yield f"http://localhost:{listening}{request.param}"


@pytest.mark.slow
async def test_pages_work_behind_a_real_proxy(client: Client, site: str) -> None:
    await client.enqueue("demo.echo", queue="mail", delay="1h")
    root = "/" + site.rpartition("/")[2]
    async with chromium() as engine, watched(engine) as (_, page):
        await page.goto(f"{site}/")
        await page.wait_for_url(f"**{root}/dashboard")
        await page.get_by_role("link", name="Queues").click()
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_label("Reason").fill("provider down")
        await page.locator("#dialog").get_by_role("button", name="Pause").click()
        await expect(page.locator("tr.row")).to_contain_text("provider down")
        assert (await client.queue("mail")).pause is not None


@pytest.mark.slow
async def test_the_api_works_behind_a_real_proxy(site: str, client: Client) -> None:
    async with httpx.AsyncClient() as http:
        added = await http.post(f"{site}/api/v1/jobs", json={"type": "demo.echo"})
        assert added.status_code in (201, 202)
        host = site.rpartition("/")[0]
        assert (await http.get(f"{host}{added.headers['location']}")).status_code == 200
        assert (await Browser(http).get(f"{site}/dashboard/jobs")).status_code == 200
