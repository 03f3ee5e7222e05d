"""FastAPI: the lifespan, the client as a dependency, and endpoints that run later."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    Response,
    Security,
    UploadFile,
    WebSocket,
)
from fastapi.security import HTTPBearer, OAuth2PasswordBearer, SecurityScopes
from pydantic import BaseModel, PositiveInt
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import Route

from demora import Demora, Status, current_run
from demora.client.client import Client
from demora.contrib.fastapi import AtRequest, NoWebApplication, add_job_routes, demora_client, later, lifespan, routes
from demora.errors import BadHandler
from demora.testing import Sandbox
from tests.contrib.sites import Site

SECRET = "hunter2"


class Spec(BaseModel):
    pages: PositiveInt


class Report(BaseModel):
    text: str


class User(BaseModel):
    name: str


async def test_a_request_is_stored_and_its_endpoint_runs_in_the_worker(site: Site) -> None:
    @site.web.post("/shops/{shop}/reports", status_code=202)
    @later(site.jobs, "report")
    async def report(shop: str, spec: Spec, lang: str = "en", x_tenant: Annotated[str, Header()] = "-") -> Report:
        run = current_run()
        assert run is not None
        return Report(text=f"{shop} {spec.pages} {lang} {x_tenant} {run.job.type}")

    added = await site.post("/shops/lima/reports?lang=es", x_tenant="t1", authorization=SECRET, cookie=f"s={SECRET}")
    assert added.headers["location"] == added.json()["statusUrl"] == f"/later/{added.json()['id']}"
    assert added.headers["retry-after"] == "1"
    done = await site.ran(added)
    assert (done.status_code, done.json()) == (200, {"text": "lima 3 es t1 report"})
    status = (await site.http.get(added.headers["location"])).json()
    assert (status["status"], status["progress"]) == ("COMPLETED", None)
    job = await site.jobs.get(status["id"])
    assert job.payload["request"] == {
        "method": "POST",
        "path": "/shops/lima/reports",
        "path_params": {"shop": "lima"},
        "query": "lang=es",
        "headers": [["x-tenant", "t1"], ["content-type", "application/json"]],
        "body": {"pages": 3},
    }


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/reports", {"pages": 0}, ["body", "pages"]),
        ("/reports?limit=x", {"pages": 1}, ["query", "limit"]),
        ("/reports?deep=x", {"pages": 1}, ["query", "deep"]),
    ],
)
async def test_a_request_that_does_not_fit_is_refused_and_not_stored(
    site: Site, path: str, body: Any, named: list[str]
) -> None:
    def deeper(deep: int = 1) -> int:
        return deep

    def page(deep: Annotated[int, Depends(deeper)], limit: int = 1) -> int:
        return limit + deep

    @site.later()
    async def report(spec: Spec, page: Annotated[int, Depends(page)]) -> None: ...

    refused = await site.http.post(path, json=body)
    assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (422, named)
    assert (await site.jobs.find()).jobs == []


async def test_a_check_refuses_before_anything_is_stored(site: Site) -> None:
    def quota(spec: Spec, authorization: Annotated[str, Header()]) -> None:
        if authorization != "paid":
            raise HTTPException(402, "pay first")

    @site.later(check=quota)
    async def report(spec: Spec) -> int:
        return spec.pages

    refused = await site.post(authorization="free")
    assert (refused.status_code, refused.json()) == (402, {"detail": "pay first"})
    assert (await site.jobs.find()).jobs == []
    assert (await site.ran(await site.post(authorization="paid"))).json() == 3


async def test_yield_dependencies_run_around_the_endpoint_in_the_worker(site: Site) -> None:
    async def database(request: Request) -> AsyncIterator[str]:
        site.events.append("begin")
        try:
            yield f"{request.app.state.pool} in {request.state.region}"
        except HTTPException:
            site.events.append("rollback")
            raise
        else:
            site.events.append("commit")

    @site.later()
    def report(spec: Spec, database: Annotated[str, Depends(database)], fails: bool = False) -> str:
        site.events.append(database)
        if fails:
            raise HTTPException(409)
        return database

    added = await site.post()
    assert (await site.ran(added)).json() == "pool in eu"
    assert site.events == ["opened", "begin", "pool in eu", "commit"]
    await site.ran(await site.post("/reports?fails=true"))
    assert site.events[4:] == ["begin", "pool in eu", "rollback"]


async def test_overrides_of_dependencies_apply_in_the_worker_as_they_are_then(site: Site) -> None:
    def clock() -> str:
        return "real"

    @site.later()
    async def report(spec: Spec, clock: Annotated[str, Depends(clock)]) -> str:
        return clock

    assert (await site.ran(await site.post())).json() == "real"
    site.web.dependency_overrides = {clock: lambda: "test"}
    assert (await site.ran(await site.post())).json() == "test"
    site.web.dependency_overrides.clear()
    assert (await site.ran(await site.post())).json() == "real"


async def test_a_dependency_at_the_request_runs_there_and_its_value_is_stored(site: Site) -> None:
    ran: list[str] = []

    def current_user(authorization: Annotated[str, Header()]) -> User:
        ran.append("request" if current_run() is None else "worker")
        return User(name=authorization)

    CurrentUser = Annotated[User, Depends(current_user), AtRequest]

    def database(user: CurrentUser) -> str:
        return f"database of {user.name}"

    @site.later()
    async def report(spec: Spec, user: CurrentUser, database: Annotated[str, Depends(database)]) -> list[str]:
        assert isinstance(user, User)
        return [user.name, database]

    added = await site.post(authorization="ada")
    assert (await site.ran(added)).json() == ["ada", "database of ada"]
    assert ran == ["request"]
    assert (await site.jobs.get(added.json()["id"])).payload["request"]["values"] == {"user": {"name": "ada"}}


def bearer(token: Annotated[str, Depends(OAuth2PasswordBearer("token"))]) -> str:
    return token


def cookie(session: Annotated[str, Cookie()]) -> str:
    return session


def authorized(authorization: Annotated[str, Header()]) -> str:
    return authorization


async def reads_a_cookie(session: Annotated[str, Cookie()]) -> None: ...
async def reads_authorization(authorization: Annotated[str, Header()]) -> None: ...
async def needs_a_bearer(user: Annotated[str, Depends(bearer)]) -> None: ...
async def needs_a_scheme(user: Annotated[str, Depends(HTTPBearer())]) -> None: ...
async def needs_a_cookie(user: Annotated[str, Depends(cookie)]) -> None: ...
async def needs_authorization(user: Annotated[str, Depends(authorized)]) -> None: ...
async def takes_a_response(response: Response) -> None: ...
async def takes_tasks(tasks: BackgroundTasks) -> None: ...
async def takes_a_socket(socket: WebSocket) -> None: ...
async def takes_a_form(name: Annotated[str, Form()]) -> None: ...
async def takes_a_file(file: Annotated[UploadFile, File()]) -> None: ...
async def returns_a_response() -> Response:
    raise NotImplementedError


async def streams() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize(
    ("endpoint", "named"),
    [
        (reads_a_cookie, "it reads credentials, which are never stored; mark it AtRequest"),
        (reads_authorization, "it reads authorization"),
        (needs_a_bearer, "its dependency OAuth2PasswordBearer reads credentials"),
        (needs_a_scheme, "its dependency HTTPBearer reads credentials"),
        (needs_a_cookie, "its dependency cookie reads credentials"),
        (needs_authorization, "its dependency authorized reads authorization"),
        (takes_a_response, "it takes a Response or BackgroundTasks"),
        (takes_tasks, "it takes a Response or BackgroundTasks"),
        (takes_a_socket, "it takes a WebSocket"),
        (takes_a_form, "it takes a form or a file"),
        (takes_a_file, "it takes a form or a file"),
        (returns_a_response, "it returns a Response"),
        (streams, "it yields"),
    ],
)
def test_an_endpoint_that_no_worker_can_run_is_refused_when_it_is_declared(endpoint: Any, named: str) -> None:
    with pytest.raises(BadHandler) as refused:
        later(Demora("sqlite://"), "report")(endpoint)
    assert named in str(refused.value)


def test_a_dependency_whose_value_is_no_json_cannot_run_at_the_request() -> None:
    class Connection: ...

    def connect() -> Connection:
        return Connection()

    async def report(connection: Any) -> None: ...

    report.__annotations__["connection"] = Annotated[Connection, Depends(connect), AtRequest]
    with pytest.raises(BadHandler, match="the value of its dependency connect cannot be stored as JSON"):
        later(Demora("sqlite://"), "report")(report)


def test_an_endpoint_does_not_run_in_a_process_of_its_own() -> None:
    with pytest.raises(BadHandler, match="leave process out"):
        later(Demora("sqlite://"), "report", process=True)


async def test_an_error_of_the_caller_fails_the_job_for_good_and_is_the_answer_of_the_result(site: Site) -> None:
    @site.later(max_retries=3)
    async def report(spec: Spec) -> None:
        raise HTTPException(404, {"no": "such page"})

    answer = await site.ran(added := await site.post())
    assert (answer.status_code, answer.json()) == (404, {"detail": {"no": "such page"}})
    job = await site.jobs.get(added.json()["id"])
    assert (job.status, job.error, len(job.attempts)) == (Status.FAILED, "Fail: the endpoint answered 404", 1)


async def test_exception_handlers_of_the_application_apply_in_the_worker(site: Site) -> None:
    class Gone(Exception): ...

    @site.web.exception_handler(Gone)
    async def gone(request: Request, problem: Gone) -> Response:
        return Response('{"gone": true}', 410, media_type="application/json")

    @site.later()
    async def report(spec: Spec) -> None:
        raise Gone

    answer = await site.ran(await site.post())
    assert (answer.status_code, answer.json()) == (410, {"gone": True})


async def test_other_errors_are_retried_and_their_text_stays_inside(site: Site) -> None:
    tries: list[int] = []

    @site.later(max_retries=2, retry_delay="0s")
    async def report(spec: Spec) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise HTTPException(503, headers={"Retry-After": "0"})
        raise RuntimeError(SECRET)

    answer = await site.ran(added := await site.post())
    assert (answer.status_code, answer.json()) == (500, {"detail": "The job failed.", "job": added.json()["id"]})
    job = await site.jobs.get(added.json()["id"])
    assert [attempt.error for attempt in job.attempts] == [
        "Retry: the endpoint answered 503",
        *[f"RuntimeError: {SECRET}"] * 2,
    ]


async def test_a_caller_may_prefer_to_wait_for_the_result(site: Site) -> None:
    gate = asyncio.Event()

    @site.later()
    async def report(spec: Spec, waits: bool = False) -> int:
        if waits:
            await gate.wait()
        return spec.pages

    answered = await site.post(prefer="wait=60")
    assert (answered.status_code, answered.json(), answered.headers["preference-applied"]) == (200, 3, "wait=60")
    assert (await site.http.get(answered.headers["location"])).json()["status"] == "COMPLETED"
    late = await site.post("/reports?waits=true", prefer="wait=0")
    assert late.status_code == 202
    assert (await site.http.get(late.json()["resultUrl"])).status_code == 202
    gate.set()
    assert (await site.ran(late)).json() == 3


async def test_a_repeated_key_gives_the_same_job_and_is_refused_for_another_request(site: Site) -> None:
    @site.later()
    async def report(spec: Spec) -> int:
        return spec.pages

    first, again = [await site.post(idempotency_key="k") for _ in range(2)]
    assert first.json()["id"] == again.json()["id"]
    other = await site.http.post("/reports", json={"pages": 4}, headers={"idempotency-key": "k"})
    assert other.status_code == 422
    assert "key" in other.json()["detail"]


async def test_a_caller_cancels_a_job(site: Site) -> None:
    began, ended = asyncio.Event(), list[str]()

    @site.later()
    async def report(spec: Spec) -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("interrupted")

    added = await site.post()
    await began.wait()
    assert (await site.http.delete(added.headers["location"])).json()["status"] == "PROCESSING"
    assert (await site.ran(added)).status_code == 410
    assert ended == ["interrupted"]
    assert (await site.http.delete(added.headers["location"])).status_code == 409


async def test_a_caller_hears_of_a_job_until_it_has_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    monkeypatch.setattr(routes, "STILL_HERE", 0.05)

    @site.later()
    async def report(spec: Spec) -> int:
        run = current_run()
        assert run is not None
        run.progress(0.5, "half")
        await gate.wait()
        return spec.pages

    added = await site.post()
    scope = {"type": "http", "method": "GET", "path": added.json()["eventsUrl"], "query_string": b"", "headers": []}
    heard, ended = list[Any](), asyncio.Event()

    async def send(message: Any) -> None:
        heard.append(message)
        if b'"progress":0.5' in message.get("body", b""):
            gate.set()

    await site.web(scope | {"asgi": {"version": "3.0"}, "http_version": "1.1"}, ended.wait, send)
    said = b"".join(message.get("body", b"") for message in heard).decode()
    statuses = [json.loads(line.removeprefix("data: "))["status"] for line in said.splitlines() if line.startswith("data")]
    assert statuses[-1] == "COMPLETED"
    assert set(statuses) <= {"QUEUED", "PROCESSING", "COMPLETED"}
    again = await site.http.get(added.json()["eventsUrl"])
    assert (again.headers["content-type"], again.text.count("data: ")) == ("text/event-stream; charset=utf-8", 1)


async def test_the_routes_show_no_jobs_but_those_of_endpoints(site: Site) -> None:
    job = await site.jobs.enqueue("demo.echo")
    for id in (job.id, "nonsense"):
        assert (await site.http.get(f"/later/{id}")).status_code == 404
        assert (await site.http.get(f"/later/{id}/result")).status_code == 404
        assert (await site.http.get(f"/later/{id}/events")).status_code == 404
        assert (await site.http.delete(f"/later/{id}")).status_code == 404


async def test_a_body_that_is_too_large_is_refused(site: Site) -> None:
    @site.later()
    async def report(text: dict[str, str]) -> None: ...

    refused = await site.http.post("/reports", json={"text": "x" * 2_000_000})
    assert refused.status_code == 413


async def test_a_text_is_stored_as_text(site: Site) -> None:
    @site.later()
    async def report(text: Annotated[str, Body(media_type="text/plain")]) -> str:
        return text[::-1]

    added = await site.http.post("/reports", content="año", headers={"content-type": "text/plain"})
    assert (await site.ran(added)).json() == "oña"


async def test_the_answer_can_be_shaped(site: Site) -> None:
    @site.later(answer=lambda job: {"ticket": job.id})
    async def report(spec: Spec) -> None: ...

    added = await site.post()
    assert set(added.json()) == {"ticket"}
    assert added.headers["location"] == f"/later/{added.json()['ticket']}"


async def test_more_headers_are_stored_if_they_are_named_but_never_credentials(site: Site) -> None:
    @site.later(headers=("X-Trace", "Authorization", "Cookie"))
    async def report(spec: Spec, request: Request) -> dict[str, str]:
        return dict(request.headers)

    added = await site.post(x_trace="7", authorization=SECRET, cookie=f"s={SECRET}")
    assert (await site.ran(added)).json() == {"x-trace": "7", "content-type": "application/json"}


async def test_an_answer_that_is_no_json_fails_the_job(site: Site) -> None:
    @site.later()
    async def report(spec: Spec) -> Any:
        return Response("<p>", media_type="text/html")

    added = await site.post()
    assert (await site.ran(added)).status_code == 500
    job = await site.jobs.get(added.json()["id"])
    assert job.error == "Fail: the endpoint answered with text/html, but the result of a job is JSON"


async def test_the_routes_of_a_router_and_their_dependencies_run_in_the_request(site: Site) -> None:
    def guard(authorization: Annotated[str, Header()]) -> None:
        if authorization != SECRET:
            raise HTTPException(403)

    router = APIRouter(prefix="/api", dependencies=[Depends(guard)])

    @router.put("/files/{path:path}")
    @later(site.jobs, "file.scan")
    async def scan(path: str) -> str:
        return path

    site.web.include_router(router)
    assert (await site.http.put("/api/files/a/b")).status_code == 422
    assert (await site.http.put("/api/files/a/b", headers={"authorization": "?"})).status_code == 403
    added = await site.http.put("/api/files/a/b", headers={"authorization": SECRET})
    assert (await site.ran(added)).json() == "a/b"


class Filter(BaseModel):
    limit: int = 5


class Paging:
    def __init__(self, page: int = 1) -> None:
        self.page = page


def shelf(paging: Annotated[Paging, Depends()]) -> str:
    return f"shelf {paging.page}"


def holder(scopes: SecurityScopes, token: Annotated[str, Depends(OAuth2PasswordBearer("token"))]) -> str:
    return f"{token} may {scopes.scope_str}"


async def test_parameters_may_be_declared_in_every_way_of_fastapi(site: Site) -> None:
    @site.web.post("/books/{book}/{part:path}")
    @later(site.jobs, "book.read")
    async def read(
        book: Annotated[int, Path(gt=0)],
        part: str,
        chosen: Annotated[Filter, Query()],
        holder: Annotated[str, Security(holder, scopes=["read"]), AtRequest],
        spec: Annotated[Spec, Body(embed=True)],
        tags: Annotated[list[str], Query()],
        shelf: str = Depends(shelf),
    ) -> list[Any]:
        return [book, part, chosen.limit, holder, spec.pages, tags, shelf]

    path, sent = "/books/3/a/b?limit=7&page=2&tags=x&tags=y", {"spec": {"pages": 5}}
    added = await site.http.post(path, json=sent, headers={"authorization": "Bearer ada"})
    assert (await site.ran(added)).json() == [3, "a/b", 7, "ada may read", 5, ["x", "y"], "shelf 2"]
    assert (await site.http.post(path, json=sent)).status_code == 401


async def test_the_openapi_document_shows_the_request_of_the_endpoint_and_the_job(site: Site) -> None:
    @site.later()
    async def report(spec: Spec, lang: str = "en") -> Report:
        """Build a report."""
        raise NotImplementedError

    document = (await site.http.get("/openapi.json")).json()
    operation = document["paths"]["/reports"]["post"]
    assert operation["description"] == "Build a report."
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/Spec")
    assert [parameter["name"] for parameter in operation["parameters"]] == ["lang"]
    assert operation["responses"]["202"]["content"]["application/json"]["schema"]["$ref"].endswith("/JobStatus")
    assert {"/later/{job_id}", "/later/{job_id}/result"} <= document["paths"].keys()


async def test_a_worker_elsewhere_opens_the_lifespan_and_starts_no_second_worker() -> None:
    site = Site()
    site.web = FastAPI(lifespan=lifespan(site.jobs, worker=True, inner=site.own))
    add_job_routes(site.web, site.jobs)

    @site.later()
    async def report(spec: Spec, request: Request) -> str:
        return f"{request.app.state.pool} {request.state.region}"

    async with site.jobs, site.jobs.worker():
        assert site.events == ["opened"]
        assert len(await (await site.jobs.open()).workers()) == 1
    assert site.events == ["opened", "closed"]


async def test_jobs_in_a_sandbox_run_when_they_are_drained() -> None:
    site = Site()
    add_job_routes(site.web, site.jobs)

    @site.later()
    async def report(spec: Spec) -> int:
        return spec.pages

    with Sandbox(site.jobs) as sandbox:
        added = await site.post()
        assert added.status_code == 202
        assert [job.result for job in (await sandbox.drain()).ended] == [3]
    assert site.events == ["opened", "closed"]


async def test_a_worker_does_not_start_without_the_web_application_of_its_endpoints() -> None:
    site = Site()

    @site.later()
    async def report(spec: Spec) -> None: ...

    async with site.jobs:
        with pytest.raises(NoWebApplication, match="add_job_routes"):
            async with site.jobs.worker():
                pass


async def test_the_routes_of_jobs_come_first_with_the_lifespan() -> None:
    site = Site()

    @site.later()
    async def report(spec: Spec) -> int:
        return spec.pages

    @site.web.get("/{path:path}")
    async def anything(path: str) -> str:
        return path

    async with site.web.router.lifespan_context(site.web), site.jobs.worker():
        assert (await site.ran(await site.post())).json() == 3
    async with site.web.router.lifespan_context(site.web):
        assert (await site.http.get("/later/x")).status_code == 404
    assert (await site.http.get("/openapi.json")).text.count('"/later/{job_id}/result"') == 1


async def test_each_application_of_a_factory_has_the_routes() -> None:
    jobs = Demora("sqlite://")

    async def report(spec: Spec) -> int:
        return spec.pages

    front = later(jobs, "report")(report)
    for _ in range(2):
        web = FastAPI(lifespan=lifespan(jobs, worker=True))
        web.post("/reports")(front)
        async with (
            web.router.lifespan_context(web),
            httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop") as http,
        ):
            answer = await http.post("/reports", json={"pages": 3}, headers={"prefer": "wait=60"})
            assert (answer.status_code, answer.json()) == (200, 3)
            assert (await http.get(answer.headers["location"])).status_code == 200


async def test_the_client_is_a_dependency(site: Site) -> None:
    @site.web.get("/count")
    async def count(client: Annotated[Client, Depends(demora_client)]) -> int:
        return len((await client.find()).jobs)

    await site.jobs.enqueue("demo.echo")
    assert (await site.http.get("/count")).json() == 1


async def test_the_client_of_an_application_without_jobs_is_refused() -> None:
    with pytest.raises(LookupError, match=r"lifespan=lifespan\(jobs\)"):
        await demora_client(HTTPConnection({"type": "http", "app": FastAPI()}))


async def test_the_worker_of_a_lifespan_starts_after_your_own_lifespan_and_ends_before_it() -> None:
    events: list[str] = []
    jobs = Demora("sqlite://")
    jobs.on_startup(lambda: events.append("worker starts"))
    jobs.on_shutdown(lambda: events.append("worker stops"))

    @asynccontextmanager
    async def own(web: Any) -> AsyncIterator[None]:
        events.append("opened")
        yield
        events.append("closed")

    web = FastAPI(lifespan=lifespan(jobs, worker=True, inner=own, concurrency=1))
    async with web.router.lifespan_context(web):
        assert await jobs.result(await jobs.enqueue("demo.echo", {"a": 1}), "60s") == {"a": 1}
    assert events == ["opened", "worker starts", "worker stops", "closed"]


async def test_starlette_opens_the_store_and_gives_the_client_too() -> None:
    jobs = Demora("sqlite://")

    async def add(request: Request) -> JSONResponse:
        client = await demora_client(request)
        job = await client.enqueue("demo.echo", {"a": 1})
        return JSONResponse(await client.result(job, "60s"))

    web = Starlette(routes=[Route("/", add)], lifespan=lifespan(jobs, worker=True))
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop") as http,
    ):
        assert (await http.get("/")).json() == {"a": 1}
