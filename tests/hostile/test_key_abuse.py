"""Attacks with an API key, or without a valid one, on a real socket: floods, floods of names, and theft by a guessed key."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from demora import Demora
from demora.core.access import Scope, check_limits
from tests.api.asking import JOBS
from tests.api.keys import UNKNOWN, bearer
from tests.hostile.served import served

RECEIPT = {"id", "status", "createdAt", "scheduledAt", "dueAt"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Demora]:
    async with Demora(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


async def made(app: Demora, *scopes: Scope, **limits: Any) -> dict[str, str]:
    """The headers of a new caller."""
    return bearer((await (await app.open()).keys.create("test", scopes, limits=check_limits(**limits))).text)


async def test_a_flood_of_wrong_keys_is_refused_and_a_valid_key_is_let_in_meanwhile(app: Demora) -> None:
    valid = await made(app, Scope.READ)
    async with served(app, failed_auth_rate=1) as address, httpx.AsyncClient(base_url=address) as http:
        flood = await asyncio.gather(*(http.get(JOBS, headers=bearer(UNKNOWN)) for _ in range(100)))
        counts = Counter(answer.status_code for answer in flood)
        assert counts[401] >= 10
        assert counts[429] >= 50
        refused = next(answer for answer in flood if answer.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert (await http.get(JOBS, headers=valid)).status_code == 200
        assert (await http.get("/health/live")).status_code == 200


async def test_a_flood_cannot_hide_behind_headers_that_it_makes_up(app: Demora) -> None:
    await made(app, Scope.READ)
    async with served(app, failed_auth_rate=1) as address, httpx.AsyncClient(base_url=address, timeout=60) as http:
        names = ("x-forwarded-for", "x-real-ip", "forwarded")
        made_up = [
            {name: f"for=203.0.{n}.7" if name == "forwarded" else f"198.51.{n}.7"} for n in range(34) for name in names
        ]
        flood = await asyncio.gather(*(http.get(JOBS, headers=headers) for headers in made_up))
        assert Counter(answer.status_code for answer in flood)[429] >= 50


async def test_behind_a_trusted_proxy_callers_are_limited_apart(app: Demora) -> None:
    await made(app, Scope.READ)
    settings = {"trusted_proxies": ("127.0.0.1",), "failed_auth_rate": 1}
    async with served(app, **settings) as address, httpx.AsyncClient(base_url=address) as http:
        for _ in range(15):
            await http.get(JOBS, headers={"x-forwarded-for": "198.51.100.7"})
        loud, quiet = [
            (await http.get(JOBS, headers={"x-forwarded-for": caller})).status_code
            for caller in ("203.0.113.250, 198.51.100.7", "198.51.100.8")
        ]
        assert (loud, quiet) == (429, 401)


async def test_a_key_that_floods_is_refused_and_other_keys_are_not(app: Demora) -> None:
    loud, quiet = await made(app, Scope.READ, rate=10), await made(app, Scope.READ)
    async with served(app) as address, httpx.AsyncClient(base_url=address) as http:
        flood = await asyncio.gather(*(http.get("/api/v1/workers", headers=loud) for _ in range(100)))
        refused = [answer for answer in flood if answer.status_code == 429]
        assert refused
        assert refused[0].headers["retry-after"] == "1"
        assert (await http.get(JOBS, headers=quiet)).status_code == 200


async def test_a_key_that_only_submits_cannot_make_queue_names_without_end(app: Demora) -> None:
    key = await made(app, Scope.SUBMIT)
    async with served(app, key_max_queues=1000) as address, httpx.AsyncClient(base_url=address) as http:
        statuses = []
        for batch in range(3):
            jobs = [{"type": "report.build", "queue": f"q{batch}-{n}", "delay": 3_600_000} for n in range(500)]
            statuses.append((await http.post(f"{JOBS}/batch", json={"jobs": jobs}, headers=key)).status_code)
        assert statuses == [201, 201, 403]
        assert len(await (await app.open()).queues()) == 1000


async def test_a_key_that_only_submits_neither_reads_nor_rewrites_the_jobs_of_others(app: Demora) -> None:
    """The thief knows the type, the unique key and the idempotency key of the victim's job."""
    victim, thief = await made(app, Scope.SUBMIT), await made(app, Scope.SUBMIT)
    secrets = {"payload": {"card": "4111"}, "webhookUrl": "https://example.com/hooks?token=canary"}
    known = {"type": "charge", "unique": "order-7", "idempotencyKey": "order-7", "delay": 3_600_000}
    async with served(app) as address, httpx.AsyncClient(base_url=address) as http:
        theirs = (await http.post(JOBS, json={**known, **secrets}, headers=victim)).json()["id"]
        library = await app.enqueue("charge", {"card": "4222"}, unique="order-7", key="order-7", delay="1h")
        said = ""
        for asked in ({}, {"ifWaiting": "replace", "payload": {"card": "stolen"}}, {"idempotencyKey": None}):
            answer = await http.post(JOBS, json={**known, **asked}, headers=thief)
            said += answer.text
            assert answer.json().get("id") not in (theirs, library.id)
        batch = {"jobs": [{**known, "ifWaiting": "replace", "idempotencyKey": None}]}
        said += (await http.post(f"{JOBS}/batch", json=batch, headers=thief)).text
        assert [word for word in ("4111", "4222", "canary", theirs, library.id) if word in said] == []
        for method, path in (("GET", ""), ("GET", "/wait"), ("GET", "/why"), ("PATCH", ""), ("POST", "/cancel")):
            answer = await http.request(method, f"{JOBS}/{theirs}{path}", headers=thief, json={"priority": "LOW"})
            assert answer.status_code == 403
    assert [(await app.get(id)).payload for id in (theirs, library.id)] == [{"card": "4111"}, {"card": "4222"}]
    assert (await app.get(theirs)).webhook_url == secrets["webhookUrl"]


async def test_a_key_that_only_submits_is_answered_without_the_job_also_in_a_shared_namespace(app: Demora) -> None:
    await app.enqueue("charge", {"card": "4222"}, unique="order-7", delay="1h")
    text = (await (await app.open()).keys.create("old", [Scope.SUBMIT], namespace="")).text
    async with served(app) as address, httpx.AsyncClient(base_url=address) as http:
        answer = await http.post(JOBS, json={"type": "charge", "unique": "order-7"}, headers=bearer(text))
        assert (answer.status_code, set(answer.json())) == (201, RECEIPT)
        assert "4222" not in answer.text
