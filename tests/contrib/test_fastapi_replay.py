"""What a worker makes of a stored request is what the public route would have made of it."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Body, Cookie, Depends, FastAPI, Header, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection

from demora import Demora
from demora.client.client import Client
from demora.contrib.fastapi import demora_client, later, lifespan
from demora.errors import BadHandler
from tests.contrib.sites import Site


class Shown(BaseModel):
    a: int


class Found(BaseModel):
    a: int
    secret: str = "s"
    none: str | None = None
    long_name: int = Field(1, serialization_alias="longName")


async def found() -> Found:
    return Found(a=1)


# The answer


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"response_model": Shown}, {"a": 1}),
        ({"response_model": None}, {"a": 1, "secret": "s", "none": None, "longName": 1}),
        ({"response_model_exclude": {"secret"}}, {"a": 1, "none": None, "longName": 1}),
        ({"response_model_include": {"a"}}, {"a": 1}),
        ({"response_model_exclude_unset": True}, {"a": 1}),
        ({"response_model_exclude_defaults": True}, {"a": 1}),
        ({"response_model_exclude_none": True, "response_model_by_alias": False}, {"a": 1, "secret": "s", "long_name": 1}),
        ({}, {"a": 1, "secret": "s", "none": None, "longName": 1}),
    ],
)
@pytest.mark.parametrize("place", ["application", "router", "router in a router", "mounted application"])
async def test_the_result_is_shaped_as_the_route_says(site: Site, options: Any, shown: Any, place: str) -> None:
    app: Any = {"application": site.web, "mounted application": FastAPI()}.get(place, APIRouter())
    app.post("/found", **options)(later(site.jobs, "find")(found))
    if place == "mounted application":
        site.web.mount("/in", app)
    elif place == "router in a router":
        outer = APIRouter(prefix="/in")
        outer.include_router(app)
        site.web.include_router(outer)
    elif place == "router":
        site.web.include_router(app, prefix="/in")
    done = await site.ran(await site.post("/found" if place == "application" else "/in/found"))
    assert (done.status_code, done.json()) == (200, shown)


async def test_a_result_that_does_not_fit_the_response_model_fails_the_job(site: Site) -> None:
    @site.web.post("/found", response_model=Shown)
    @later(site.jobs, "find", max_retries=0)
    async def find() -> Any:
        return {"secret": "s"}

    added = await site.post("/found")
    assert (await site.ran(added)).status_code == 500
    assert (await site.jobs.get(added.json()["id"])).result_json is None


async def test_the_response_model_is_found_below_another_decorator(site: Site) -> None:
    def limited(endpoint: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(endpoint)
        async def limit(*args: Any, **kwargs: Any) -> Any:
            return await endpoint(*args, **kwargs)

        return limit

    site.web.post("/found", response_model=Shown)(limited(later(site.jobs, "find")(found)))
    assert (await site.ran(await site.post("/found"))).json() == {"a": 1}


async def test_routes_of_one_endpoint_must_agree(site: Site) -> None:
    front = later(site.jobs, "find")(found)
    site.web.post("/found", response_model=Shown)(front)
    site.web.post("/all")(front)
    with pytest.raises(BadHandler, match="its routes differ"):
        await site.post("/found")
    assert (await site.jobs.find()).jobs == []


async def test_a_route_that_does_not_answer_with_json_is_refused(site: Site) -> None:
    site.web.post("/found", response_class=HTMLResponse)(later(site.jobs, "find")(found))
    with pytest.raises(BadHandler, match="response_class=JSONResponse"):
        await site.post("/found")


async def test_an_application_with_a_route_that_cannot_be_replayed_does_not_start() -> None:
    jobs = Demora("sqlite://")
    web = FastAPI(lifespan=lifespan(jobs))
    web.post("/found", response_class=HTMLResponse)(later(jobs, "find")(found))
    with pytest.raises(BadHandler, match="response_class=JSONResponse"):
        async with web.router.lifespan_context(web):
            pass


async def test_a_job_whose_endpoint_has_no_route_fails(site: Site) -> None:
    later(site.jobs, "find", max_retries=0)(found)
    job = await site.jobs.enqueue("find", {"request": {"method": "POST", "path": "/found"}})
    ended = await site.jobs.wait(job, "60s")
    assert "no route in the web application" in (ended.error or "")


# The body


async def test_an_endpoint_that_takes_the_request_reads_its_body_byte_by_byte(site: Site) -> None:
    @site.web.post("/hooks")
    @later(site.jobs, "hook")
    async def hook(request: Request) -> list[str]:
        return [(await request.body()).hex(), request.headers.get("content-type", "")]

    for body, kind in (
        (b'{ "a" : 1.0 }', "application/json"),
        ("año\0".encode(), "text/plain"),
        (b"\xff\xfe", "application/octet-stream"),
        (b"a=1&b=2", "application/x-www-form-urlencoded"),
        (b"", ""),
    ):
        added = await site.http.post("/hooks", content=body, headers={"content-type": kind} if kind else {})
        assert (await site.ran(added)).json() == [body.hex(), kind]


async def test_a_dependency_that_takes_the_request_reads_its_body_too(site: Site) -> None:
    async def signed(request: Request) -> str:
        return (await request.body()).decode()

    @site.web.post("/hooks")
    @later(site.jobs, "hook")
    async def hook(text: Annotated[str, Depends(signed)]) -> str:
        return text

    added = await site.http.post("/hooks", content='{"a":  1}', headers={"content-type": "application/json"})
    assert (await site.ran(added)).json() == '{"a":  1}'


async def test_a_body_that_only_the_endpoint_would_read_is_limited_too(site: Site) -> None:
    @site.web.post("/hooks")
    @later(site.jobs, "hook")
    async def hook(request: Request) -> None: ...

    assert (await site.http.post("/hooks", content=b"x" * 2_000_000)).status_code == 413
    assert (await site.jobs.find()).jobs == []


async def test_a_body_of_bytes_is_stored(site: Site) -> None:
    @site.web.post("/scans")
    @later(site.jobs, "scan")
    async def scan(data: Annotated[bytes, Body(media_type="application/octet-stream")]) -> str:
        return data.hex()

    added = await site.http.post("/scans", content=b"\xff\x00", headers={"content-type": "application/octet-stream"})
    assert (await site.ran(added)).json() == "ff00"


async def test_an_endpoint_sees_that_the_caller_of_a_replayed_request_is_there(site: Site) -> None:
    @site.web.post("/hooks")
    @later(site.jobs, "hook")
    async def hook(request: Request) -> bool:
        await request.body()
        return await request.is_disconnected()

    assert (await site.ran(await site.post("/hooks"))).json() is False


class Spec(BaseModel):
    pages: int


class Agent(BaseModel):
    name: str


@pytest.mark.parametrize("place", ["route", "router", "application"])
async def test_a_dependency_of_the_route_may_take_a_part_of_the_body(place: str) -> None:
    seen: list[str] = []

    def deeper(agent: Agent) -> str:
        return agent.name

    def noted(agent: Annotated[str, Depends(deeper)], token: Annotated[str, Header()]) -> None:
        seen.append(agent)

    at = {place: [Depends(noted)]}
    jobs = Demora("sqlite://")
    web = FastAPI(lifespan=lifespan(jobs), dependencies=at.get("application"))
    router = APIRouter(dependencies=at.get("router"))

    @router.post("/reports", dependencies=at.get("route"))
    @later(jobs, "report")
    async def report(spec: Spec) -> int:
        return spec.pages

    web.include_router(router)
    async with (
        web.router.lifespan_context(web),
        jobs.worker(),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop", headers={"token": "t"}) as http,
    ):
        body = {"spec": {"pages": 3}, "agent": {"name": "ada"}}
        done = await http.post("/reports", json=body, headers={"prefer": "wait=60"})
    assert (done.status_code, done.json()) == (200, 3)
    assert seen == ["ada"]


async def test_a_dependency_of_the_route_that_is_also_a_parameter_runs_in_the_worker_as_well(site: Site) -> None:
    def agent(agent: Agent) -> str:
        return agent.name

    @site.web.post("/reports", dependencies=[Depends(agent)])
    @later(site.jobs, "report")
    async def report(spec: Spec, by: Annotated[str, Depends(agent)]) -> str:
        return f"{by} {spec.pages}"

    added = await site.http.post("/reports", json={"spec": {"pages": 3}, "agent": {"name": "ada"}})
    assert (await site.ran(added)).json() == "ada 3"


# Headers, cookies and queries as models


class Trace(BaseModel):
    x_trace: str
    span: str = Field("-", alias="X-Span")
    region: str = Field("-", validation_alias=AliasChoices("x-region", "x-zone"))


async def test_the_fields_of_a_header_model_are_stored(site: Site) -> None:
    @site.web.post("/reports")
    @later(site.jobs, "report")
    async def report(trace: Annotated[Trace, Header()]) -> list[str]:
        return [trace.x_trace, trace.span, trace.region]

    added = await site.post("/reports", x_trace="7", x_span="8", x_zone="eu", x_other="no")
    assert (await site.ran(added)).json() == ["7", "8", "eu"]
    stored = (await site.jobs.get(added.json()["id"])).payload["request"]["headers"]
    assert sorted(name for name, _ in stored) == ["x-span", "x-trace", "x-zone"]
    assert (await site.post("/reports")).status_code == 422


async def test_the_fields_of_a_query_model_are_read(site: Site) -> None:
    @site.web.post("/reports")
    @later(site.jobs, "report")
    async def report(spec: Annotated[Spec, Query()]) -> int:
        return spec.pages

    assert (await site.ran(await site.post("/reports?pages=4"))).json() == 4


class Signed(BaseModel):
    authorization: str


class Renamed(BaseModel):
    token: str = Field(validation_alias=AliasChoices("x-token", "Authorization"))


class Everything(BaseModel):
    model_config = ConfigDict(extra="allow")


class Session(BaseModel):
    session: str


async def reads_a_secret_model(headers: Annotated[Signed, Header()]) -> None: ...
async def reads_a_renamed_model(headers: Annotated[Renamed, Header()]) -> None: ...
async def reads_an_optional_model(headers: Annotated[Signed | None, Header()] = None) -> None: ...
async def reads_a_renamed_header(token: Annotated[str, Header(validation_alias="authorization")]) -> None: ...
async def reads_everything(headers: Annotated[Everything, Header()]) -> None: ...
async def reads_a_cookie_model(cookies: Annotated[Session, Cookie()]) -> None: ...


@pytest.mark.parametrize(
    ("endpoint", "named"),
    [
        (reads_a_secret_model, "it reads authorization"),
        (reads_a_renamed_model, "it reads authorization"),
        (reads_an_optional_model, "it reads authorization"),
        (reads_a_renamed_header, "it reads authorization"),
        (reads_everything, "it takes a model of all headers"),
        (reads_a_cookie_model, "it reads credentials"),
    ],
)
def test_a_model_of_credentials_is_refused_when_it_is_declared(endpoint: Any, named: str) -> None:
    with pytest.raises(BadHandler) as refused:
        later(Demora("sqlite://"), "report")(endpoint)
    assert named in str(refused.value)


# The client


async def test_an_endpoint_that_runs_later_enqueues_further_jobs(site: Site) -> None:
    @site.web.post("/reports")
    @later(site.jobs, "report")
    async def report(client: Annotated[Client, Depends(demora_client)]) -> str:
        return (await client.enqueue("demo.echo", {"a": 1}, delay="1h")).type

    assert (await site.ran(await site.post("/reports"))).json() == "demo.echo"


async def test_an_endpoint_that_takes_a_connection_gets_the_stored_request(site: Site) -> None:
    @site.web.post("/reports")
    @later(site.jobs, "report")
    async def report(connection: HTTPConnection) -> str:
        return f"{connection.url.path} {connection.app.state.pool}"

    assert (await site.ran(await site.post("/reports"))).json() == "/reports pool"
