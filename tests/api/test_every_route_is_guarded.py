"""The matrix of every route and every sort of key. A route that is not in `NEEDS` fails here."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.api.operations.operation import Operation
from demora.api.routes import ROUTES
from demora.core.access import KeyLimits, Scope
from demora.engines.sqlite import SqliteStore
from demora.settings import Settings
from tests.api.asking import JOBS, problem
from tests.api.conftest import BASE
from tests.api.keys import UNKNOWN, bearer, key_for, revoke, too_weak_for
from tests.clock import TestClock

QUEUES, DEAD = "/api/v1/queues", "/api/v1/dead-letters"
SCHEDULES, WORKERS = "/api/v1/schedules", "/api/v1/workers"
NEEDS = {
    ("GET", "/"): Scope.READ,
    ("POST", WORKERS): Scope.WORK,
    ("POST", f"{WORKERS}/{{workerId}}/claim"): Scope.WORK,
    ("POST", f"{WORKERS}/{{workerId}}/renew"): Scope.WORK,
    ("POST", f"{WORKERS}/{{workerId}}/settle"): Scope.WORK,
    ("DELETE", f"{WORKERS}/{{workerId}}"): Scope.WORK,
    ("GET", "/health/live"): None,
    ("GET", "/health/ready"): None,
    ("GET", "/api/v1/openapi.json"): Scope.READ,
    ("GET", "/docs"): Scope.READ,
    ("POST", JOBS): Scope.SUBMIT,
    ("POST", f"{JOBS}/batch"): Scope.SUBMIT,
    ("POST", f"{JOBS}/actions"): Scope.OPERATE,
    ("GET", f"{JOBS}/actions/{{id}}"): Scope.READ,
    ("GET", JOBS): Scope.READ,
    ("GET", f"{JOBS}/{{id}}"): Scope.READ,
    ("PATCH", f"{JOBS}/{{id}}"): Scope.OPERATE,
    ("DELETE", f"{JOBS}/{{id}}"): Scope.OPERATE,
    ("POST", f"{JOBS}/{{id}}/cancel"): Scope.OPERATE,
    ("POST", f"{JOBS}/{{id}}/cancel/undo"): Scope.OPERATE,
    ("POST", f"{JOBS}/{{id}}/retry"): Scope.OPERATE,
    ("GET", f"{JOBS}/{{id}}/wait"): Scope.READ,
    ("GET", f"{JOBS}/{{id}}/webhooks"): Scope.READ,
    ("POST", f"{JOBS}/{{id}}/webhooks/retry"): Scope.OPERATE,
    ("GET", f"{JOBS}/{{id}}/why"): Scope.READ,
    ("GET", DEAD): Scope.READ,
    ("GET", f"{DEAD}/stats"): Scope.READ,
    ("POST", f"{DEAD}/retry"): Scope.OPERATE,
    ("POST", f"{DEAD}/delete"): Scope.OPERATE,
    ("GET", QUEUES): Scope.READ,
    ("GET", f"{QUEUES}/{{name}}"): Scope.READ,
    ("PATCH", f"{QUEUES}/{{name}}"): Scope.ADMIN,
    ("POST", f"{QUEUES}/{{name}}/pause"): Scope.OPERATE,
    ("POST", f"{QUEUES}/{{name}}/resume"): Scope.OPERATE,
    ("GET", SCHEDULES): Scope.READ,
    ("POST", SCHEDULES): Scope.ADMIN,
    ("POST", f"{SCHEDULES}/preview"): Scope.READ,
    ("GET", f"{SCHEDULES}/{{name}}"): Scope.READ,
    ("PATCH", f"{SCHEDULES}/{{name}}"): Scope.ADMIN,
    ("DELETE", f"{SCHEDULES}/{{name}}"): Scope.ADMIN,
    ("POST", f"{SCHEDULES}/{{name}}/pause"): Scope.OPERATE,
    ("POST", f"{SCHEDULES}/{{name}}/resume"): Scope.OPERATE,
    ("POST", f"{SCHEDULES}/{{name}}/trigger"): Scope.OPERATE,
    ("GET", f"{SCHEDULES}/{{name}}/next-runs"): Scope.READ,
    ("GET", f"{SCHEDULES}/{{name}}/jobs"): Scope.READ,
    ("GET", "/api/v1/workers"): Scope.READ,
    ("GET", "/api/v1/stats"): Scope.READ,
    ("GET", "/api/v1/events"): Scope.READ,
    ("GET", "/metrics"): Scope.READ,
    ("GET", "/api/v1/metrics/overview"): Scope.READ,
    ("GET", "/api/v1/metrics/queues"): Scope.READ,
    ("GET", "/api/v1/metrics/types"): Scope.READ,
    ("GET", "/api/v1/metrics/workers"): Scope.READ,
    ("POST", "/api/v1/recover"): Scope.OPERATE,
}
BODIES = {
    "add_job": {"type": "demo.echo"},
    "add_batch": {"jobs": [{"type": "demo.echo"}]},
    "change_job": {"priority": "LOW"},
    "change_queue": {"strict": True},
    "register_worker": {"name": "w", "types": ["demo.echo"], "slots": 1},
    "renew_leases": {"jobs": []},
    "settle_jobs": {"jobs": [{"id": "x", "token": 1, "outcome": "completed"}]},
    "start_action": {"action": "cancel", "all": True},
    "retry_dead_letters": {"all": True},
    "delete_dead_letters": {"all": True},
    "add_schedule": {"name": "nightly", "type": "demo.echo", "every": 90_000},
    "change_schedule": {"every": 60_000},
    "preview_schedule": {"every": 90_000},
}
HOUR = timedelta(hours=1)


def name(route: Operation) -> str:
    return f"{route.method} {route.path}"


GUARDED = [pytest.param(route, id=name(route)) for route in ROUTES if NEEDS.get((route.method, route.path), True)]
OPEN = [pytest.param(route, id=name(route)) for route in ROUTES if not NEEDS.get((route.method, route.path), True)]


@pytest.fixture
async def app(clock: TestClock) -> AsyncIterator[Demora]:
    """An application with one key, so that a key is needed."""
    async with Demora(store=SqliteStore(clock=clock)) as app:
        await key_for(app, Scope.READ)
        yield app


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
async def http(request: pytest.FixtureRequest, app: Demora) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_api(app, Settings(host=request.param)))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
        yield http


async def ask(http: httpx.AsyncClient, route: Operation, key: str | None = None, *, id: str = "x") -> httpx.Response:
    """Call a route with something well formed. A service that stops ends its streams."""
    if route.name == "hear_events":
        http._transport.app.stop()  # type: ignore[attr-defined]
    headers = {"x-request-id": "1"} | ({} if key is None else bearer(key))
    path = route.path.replace("{id}", id).replace("{name}", "default")
    return await http.request(route.method, path, headers=headers, json=BODIES.get(route.name))


def needed(route: Operation) -> Scope:
    scope = NEEDS[route.method, route.path]
    assert scope is not None
    return scope


def test_every_route_and_nothing_else_is_in_the_matrix_with_its_scope() -> None:
    assert {(route.method, route.path): route.scope for route in ROUTES} == NEEDS


def test_only_the_looks_at_its_health_are_open() -> None:
    assert {path for (_, path), scope in NEEDS.items() if scope is None} == {"/health/live", "/health/ready"}


@pytest.mark.parametrize("route", GUARDED)
async def test_without_a_key_a_route_is_closed(http: httpx.AsyncClient, route: Operation) -> None:
    answer = await ask(http, route)
    assert problem(answer, 401)["title"] == "API key needed"
    assert answer.headers["www-authenticate"] == 'Bearer realm="demora"'


@pytest.mark.parametrize("route", GUARDED)
async def test_a_key_that_nobody_made_opens_no_route(http: httpx.AsyncClient, route: Operation) -> None:
    answer = await ask(http, route, UNKNOWN)
    assert problem(answer, 401)["title"] == "API key not valid"
    assert answer.headers["www-authenticate"] == 'Bearer realm="demora", error="invalid_token"'


@pytest.mark.parametrize("route", GUARDED)
async def test_a_key_with_another_secret_opens_no_route(http: httpx.AsyncClient, app: Demora, route: Operation) -> None:
    key = await key_for(app, Scope.ADMIN)
    other = key[:-1] + ("x" if key[-1] != "x" else "y")
    assert (await ask(http, route, other)).content == (await ask(http, route, UNKNOWN)).content
    problem(await ask(http, route, other), 401)


@pytest.mark.parametrize("route", GUARDED)
async def test_a_revoked_key_opens_no_route(http: httpx.AsyncClient, app: Demora, route: Operation) -> None:
    key = await key_for(app, Scope.ADMIN)
    await revoke(app, key)
    assert (await ask(http, route, key)).content == (await ask(http, route, UNKNOWN)).content
    problem(await ask(http, route, key), 401)


@pytest.mark.parametrize("route", GUARDED)
async def test_an_expired_key_opens_no_route(
    http: httpx.AsyncClient, app: Demora, route: Operation, clock: TestClock
) -> None:
    key = await key_for(app, Scope.ADMIN, life=HOUR)
    clock.turn(HOUR.total_seconds())
    assert (await ask(http, route, key)).content == (await ask(http, route, UNKNOWN)).content
    problem(await ask(http, route, key), 401)


@pytest.mark.parametrize("route", GUARDED)
async def test_a_key_for_other_things_does_not_open_a_route(http: httpx.AsyncClient, app: Demora, route: Operation) -> None:
    answer = await ask(http, route, await key_for(app, *too_weak_for(needed(route))))
    assert problem(answer, 403)["title"] == "API key not allowed"
    assert f'error="insufficient_scope", scope="{needed(route)}"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("route", GUARDED)
async def test_a_key_of_the_right_scope_opens_a_route(http: httpx.AsyncClient, app: Demora, route: Operation) -> None:
    for scope in (needed(route), Scope.ADMIN):
        answer = await ask(http, route, await key_for(app, scope, life=HOUR))
        assert answer.status_code in {*route.gives, 404, 409}, (
            answer.text
        )  # what it is about may not exist, or exist already


@pytest.mark.parametrize("route", OPEN)
async def test_an_open_route_needs_no_key_and_looks_at_none(http: httpx.AsyncClient, route: Operation) -> None:
    for key in (None, UNKNOWN):
        assert (await ask(http, route, key)).status_code == 200


@pytest.mark.parametrize("route", [param for param in GUARDED if "GET" in str(param.id)])
async def test_asking_for_the_head_alone_needs_the_same_key(http: httpx.AsyncClient, route: Operation) -> None:
    assert (await http.head(re.sub(r"{\w+}", "x", route.path))).status_code == 401


@pytest.mark.parametrize("route", [param for param in GUARDED if "GET" not in str(param.id)])
async def test_who_is_refused_changes_nothing(http: httpx.AsyncClient, app: Demora, route: Operation) -> None:
    client, job = await app.open(), await app.enqueue("demo.echo", delay="1h")
    weak = await key_for(app, *too_weak_for(needed(route)))
    before = (await app.find(), await client.queues())
    for key in (None, UNKNOWN, weak):
        assert (await ask(http, route, key, id=job.id)).status_code in (401, 403)
    assert (await app.find(), await client.queues()) == before


@pytest.fixture
async def strict(app: Demora) -> AsyncIterator[httpx.AsyncClient]:
    """The API where each key and each address may ask once in a long time."""
    transport = httpx.ASGITransport(make_api(app, Settings(host="0.0.0.0", key_rate=1, failed_auth_rate=1)))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
        yield http


@pytest.mark.parametrize("route", GUARDED)
async def test_too_many_requests_of_a_key_are_answered_429(strict: httpx.AsyncClient, app: Demora, route: Operation) -> None:
    made = await (await app.open()).keys.create("slow", [Scope.ADMIN], limits=KeyLimits(rate=1))
    answers = [await ask(strict, route, made.text) for _ in range(4)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert problem(refused[0], 429)["title"] == "Too many requests"
    assert int(refused[0].headers["retry-after"]) == 1


@pytest.mark.parametrize("route", GUARDED)
async def test_too_many_failed_authentications_are_answered_429_and_a_valid_key_is_not(
    strict: httpx.AsyncClient, app: Demora, route: Operation
) -> None:
    for key in (None, UNKNOWN) * 10:
        await ask(strict, route, key)
    for key in (None, UNKNOWN):
        answer = await ask(strict, route, key)
        assert problem(answer, 429)["title"] == "Too many failed authentications"
        assert int(answer.headers["retry-after"]) == 1
    assert (await ask(strict, route, await key_for(app, Scope.ADMIN))).status_code in {*route.gives, 404}


@pytest.mark.parametrize("route", OPEN)
async def test_an_open_route_is_not_limited(strict: httpx.AsyncClient, route: Operation) -> None:
    assert {(await ask(strict, route)).status_code for _ in range(30)} == {200}
