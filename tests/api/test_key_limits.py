"""What a key may submit, over HTTP: queues, types, names, waiting jobs, and what a submit-only key is told."""

import asyncio
from collections.abc import AsyncIterator, Sequence, Set
from typing import Any

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.api import submitting as submitting_module
from demora.core.access import KeyLimits, NameKind, Scope, check_limits
from demora.core.job import NewJob
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.api_keys import SqliteApiKeys
from demora.settings import Settings
from demora.store.jobs import Added
from tests.api.asking import JOBS, problem, stored
from tests.api.conftest import BASE
from tests.api.keys import bearer
from tests.facts import eventually

RECEIPT = {"id", "status", "createdAt", "scheduledAt", "dueAt"}


class CountedKeys(SqliteApiKeys):
    """API keys that count what limits cost."""

    namings = counts = 0

    async def name(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        self.namings += 1
        return await super().name(id, queues, types, limits)

    async def waiting(self, id: str, *, most: int) -> int:
        self.counts += 1
        return await super().waiting(id, most=most)


class Counted(SqliteStore):
    """A store in memory with such keys."""

    def __init__(self) -> None:
        super().__init__()
        self.api_keys: CountedKeys = CountedKeys(self._database)


@pytest.fixture
def store() -> Counted:
    return Counted()


@pytest.fixture
async def app(store: Counted) -> AsyncIterator[Demora]:
    async with Demora(store=store) as app:
        yield app


async def caller(app: Demora, *scopes: Scope, settings: Settings | None = None, **limits: Any) -> httpx.AsyncClient:
    """One who asks with a new key of these limits."""
    keys = (await app.open()).keys
    made = await keys.create("test", scopes or (Scope.SUBMIT,), limits=check_limits(**limits))
    transport = httpx.ASGITransport(make_api(app, settings or Settings()))
    return httpx.AsyncClient(transport=transport, base_url=BASE, headers=bearer(made.text))


async def post(http: httpx.AsyncClient, type: str = "demo.echo", **asked: Any) -> httpx.Response:
    return await http.post(JOBS, json={"type": type, "delay": 3_600_000, **asked})


async def test_a_queue_or_type_that_the_key_may_not_use_is_refused_by_its_field(app: Demora) -> None:
    async with await caller(app, queues=["mail.*"], types=["email.*"]) as http:
        assert (await post(http, "email.send", queue="mail.eu")).status_code == 201
        told = problem(await post(http, "email.send", queue="other"), 403, "queue")
        assert told["title"] == "Queue or type not allowed"
        assert "it may use mail.*" in told["detail"]
        problem(await post(http, "email.send"), 403, "queue")  # the default queue is a queue too
        problem(await post(http, "other", queue="mail.eu"), 403, "type")
        good, bad = {"type": "email.send", "queue": "mail.eu"}, {"type": "email.send", "queue": "x"}
        problem(await http.post(f"{JOBS}/batch", json={"jobs": [good, bad]}), 403, "jobs[1].queue")
    assert await stored(app) == 1


async def test_a_key_uses_no_more_names_than_its_limits_allow(app: Demora) -> None:
    async with await caller(app, max_queues=2, max_types=2) as http:
        for queue in ("a", "b", "a"):
            assert (await post(http, queue=queue)).status_code == 201
        assert problem(await post(http, queue="c"), 403, "queue")["title"] == "Limit of the API key reached"
        assert (await post(http, "one", queue="a")).status_code == 201
        problem(await post(http, "two", queue="a"), 403, "type")
        jobs = [{"type": "demo.echo", "queue": queue} for queue in ("a", "d")]
        problem(await http.post(f"{JOBS}/batch", json={"jobs": jobs}), 403, "queue")
        assert (await post(http, queue="b")).status_code == 201
    assert await stored(app) == 5


async def test_the_limits_of_the_settings_hold_for_keys_without_their_own(app: Demora) -> None:
    settings = Settings(key_max_queues=1, key_max_waiting=2)
    async with await caller(app, settings=settings) as http:
        assert (await post(http, queue="a")).status_code == 201
        problem(await post(http, queue="b"), 403, "queue")
        assert (await post(http, queue="a")).status_code == 201
        problem(await post(http, queue="a"), 429)
    async with await caller(app, settings=settings, max_queues=0, max_waiting=0) as free:
        assert [(await post(free, queue=f"q{n}")).status_code for n in range(5)] == [201] * 5


async def test_known_names_cost_no_look_at_the_database(app: Demora, store: Counted) -> None:
    async with await caller(app) as http:
        for _ in range(50):
            await post(http, queue="a")
    assert (store.api_keys.namings, store.api_keys.counts) == (1, 0)


async def test_what_a_process_remembers_of_names_is_bounded(
    app: Demora, store: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting_module, "MOST_NAMES", 10)
    async with await caller(app, max_queues=30) as http:
        for n in range(30):
            assert (await post(http, queue=f"q{n}")).status_code == 201
        problem(await post(http, queue="one more"[:3]), 403, "queue")
        assert (await post(http, queue="q0")).status_code == 201
    assert store.api_keys.namings == 32


async def test_no_more_jobs_wait_than_the_limit_allows(app: Demora) -> None:
    async with await caller(app, max_waiting=5) as http:
        answers = await asyncio.gather(*(post(http) for _ in range(12)))
        assert sorted(answer.status_code for answer in answers) == [201] * 5 + [429] * 7
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert problem(refused, 429)["title"] == "Too many waiting jobs"
        assert refused.headers["retry-after"] == "1"
    assert await stored(app) == 5


async def test_a_batch_that_has_no_room_is_refused_as_a_whole(app: Demora) -> None:
    async with await caller(app, max_waiting=5) as http:
        jobs = [{"type": "demo.echo", "delay": 3_600_000}] * 3
        assert (await http.post(f"{JOBS}/batch", json={"jobs": jobs})).status_code == 201
        problem(await http.post(f"{JOBS}/batch", json={"jobs": jobs}), 429)
        assert (await http.post(f"{JOBS}/batch", json={"jobs": jobs[:2]})).status_code == 201
    assert await stored(app) == 5


async def test_once_jobs_have_ended_there_is_room_again(app: Demora) -> None:
    async with await caller(app, max_waiting=2) as http:
        ids = [(await post(http)).json()["id"] for _ in range(2)]
        await app.cancel(ids[0])
        assert (await post(http)).status_code == 201
        problem(await post(http), 429)


async def test_many_jobs_under_a_limit_are_counted_seldom(app: Demora, store: Counted) -> None:
    async with await caller(app, max_waiting=100_000) as http:
        for _ in range(200):
            assert (await post(http)).status_code == 201
    assert store.api_keys.counts < 20  # one a second at most, on a machine as slow as you like


async def test_who_is_refused_for_want_of_room_costs_no_count_each(app: Demora, store: Counted) -> None:
    submissions = submitting_module.Submissions(Settings(), timer=lambda: 100.0)
    client = await app.open()
    key = (await client.keys.create("test", [Scope.SUBMIT], limits=check_limits(max_waiting=1))).key
    await submissions.add(client, key, [client.make("demo.echo", delay="1h")])
    for _ in range(50):
        with pytest.raises(submitting_module.TooManyWaiting):
            await submissions.add(client, key, [client.make("demo.echo", delay="1h")])
    assert store.api_keys.counts == 2


async def test_a_key_that_may_only_submit_is_told_ids_statuses_and_times(app: Demora) -> None:
    async with await caller(app) as http:
        asked = {"payload": {"card": "4111"}, "unique": "u", "webhookUrl": "https://example.com/secret"}
        for headers in ({"idempotency-key": "k"}, {"idempotency-key": "k"}, {}):
            answer = await http.post(JOBS, json={"type": "demo.echo", "delay": 3_600_000, **asked}, headers=headers)
            assert (answer.status_code, set(answer.json())) == (201, RECEIPT)
            assert answer.headers["location"] == f"{JOBS}/{answer.json()['id']}"
        jobs = (await http.post(f"{JOBS}/batch", json={"jobs": [{"type": "demo.echo"}] * 2})).json()["jobs"]
        assert [set(job) for job in jobs] == [RECEIPT] * 2


@pytest.mark.parametrize("scopes", [(Scope.SUBMIT, Scope.READ), (Scope.SUBMIT, Scope.OPERATE), (Scope.ADMIN,)])
async def test_a_key_that_may_read_is_shown_the_job(app: Demora, scopes: tuple[Scope, ...]) -> None:
    async with await caller(app, *scopes) as http:
        assert (await post(http, payload={"a": 1})).json()["payload"] == {"a": 1}


async def test_two_callers_with_the_same_keys_do_not_meet(app: Demora) -> None:
    """Neither by a unique key, kept or replaced, nor by an idempotency key; and nor does either meet the library."""
    mine = await app.enqueue("demo.echo", {"mine": 1}, unique="u", key="k", delay="1h")
    ids = [mine.id]
    for _ in range(2):
        async with await caller(app) as http:
            answer = await post(http, payload={"theirs": 1}, unique="u", ifWaiting="replace", idempotencyKey="k")
            assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)
            ids.append(answer.json()["id"])
            assert (await post(http, unique="u")).json()["id"] == ids[-1]
    assert len(set(ids)) == 3
    assert (await app.get(mine.id)).payload == {"mine": 1}


async def test_a_rotated_key_keeps_its_namespace_and_its_names(app: Demora) -> None:
    keys = (await app.open()).keys
    made = await keys.create("test", [Scope.SUBMIT], limits=check_limits(max_queues=1))
    rotated = await keys.rotate(made.key.id, overlap="1h")
    transport = httpx.ASGITransport(make_api(app, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
        ids = set()
        for text in (made.text, rotated.text):
            answer = await http.post(JOBS, json={"type": "a", "unique": "u", "delay": 9**9}, headers=bearer(text))
            ids.add(answer.json()["id"])
            problem(await http.post(JOBS, json={"type": "a", "queue": "b"}, headers=bearer(text)), 403, "queue")
        assert len(ids) == 1
        ended = await keys.rotate(made.key.id)
        problem(await http.post(JOBS, json={"type": "a"}, headers=bearer(rotated.text + "x")), 401)
        assert (await http.post(JOBS, json={"type": "a"}, headers=bearer(ended.text))).status_code == 201


class Slow(Counted):
    """A store in memory that adds nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.adding, self.may = asyncio.Event(), asyncio.Event()

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        self.adding.set()
        await self.may.wait()
        return await super().add(jobs)


async def test_a_job_that_is_being_stored_takes_room() -> None:
    store = Slow()
    async with Demora(store=store) as app, await caller(app, max_waiting=1) as http:
        first = asyncio.ensure_future(post(http))
        await store.adding.wait()
        others = [asyncio.ensure_future(post(http)) for _ in range(3)]
        await eventually(lambda: asyncio.sleep(0, store.api_keys.counts), lambda counts: counts == 2)
        store.may.set()
        statuses = [(await answer).status_code for answer in (first, *others)]
        assert (statuses, await stored(app)) == ([201, 429, 429, 429], 1)
