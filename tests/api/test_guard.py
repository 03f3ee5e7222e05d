"""When a key is needed, how it is presented, for how long what was seen of it is believed, and that it is never told."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers

from demora import Demora
from demora.api import make_api
from demora.api.access import FRESH, Guard, opens_without_keys
from demora.core.access import Scope
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.api_keys import SqliteApiKeys
from demora.errors import StoreBusy
from demora.settings import Settings
from demora.store.api_keys import KeyLookup
from demora.store.jobs import Page, Query
from demora.wire.problems import BadKey, NoKey
from tests.api.asking import JOBS, problem
from tests.api.conftest import BASE
from tests.api.keys import UNKNOWN, bearer, id_of, key_for, revoke
from tests.clock import TestClock
from tests.facts import eventually


class CountedKeys(SqliteApiKeys):
    """API keys that count the lookups and the notes of their use, which `hidden` and `trouble` make fail."""

    looks = notes = 0
    hidden: Exception | None = None
    trouble: Exception | None = None

    async def find(self, id: str) -> KeyLookup:
        self.looks += 1
        if self.hidden is not None:
            raise self.hidden
        return await super().find(id)

    async def use(self, id: str, *, unless_within: object) -> bool:
        self.notes += 1
        if self.trouble is not None:
            raise self.trouble
        return await super().use(id, unless_within=unless_within)  # type: ignore[arg-type]


class Counted(SqliteStore):
    """A store in memory with such keys."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(clock=clock)
        self.api_keys: CountedKeys = CountedKeys(self._database)


class Timer:
    """Our own clock, turned by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(clock: TestClock) -> Counted:
    return Counted(clock)


@pytest.fixture
async def app(store: Counted) -> AsyncIterator[Demora]:
    async with Demora(store=store) as app:
        yield app


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def guard(app: Demora, timer: Timer) -> Guard:
    return Guard(app, Settings(), open_without_keys=opens_without_keys(Settings()), timer=timer)


def presenting(key: str) -> Headers:
    return Headers(bearer(key))


NOTHING = Headers({})
SOON = timedelta(milliseconds=500)


async def test_this_machine_needs_no_key_until_there_is_one(app: Demora, guard: Guard, timer: Timer) -> None:
    await guard.admit(NOTHING, Scope.ADMIN)
    await guard.admit(presenting(UNKNOWN), Scope.ADMIN)
    await key_for(app, Scope.READ)
    timer.now += FRESH
    with pytest.raises(NoKey):
        await guard.admit(NOTHING, Scope.READ)


async def test_neither_a_revocation_nor_an_expiry_opens_the_service_again(
    app: Demora, guard: Guard, clock: TestClock, timer: Timer
) -> None:
    await revoke(app, await key_for(app, Scope.READ))
    with pytest.raises(NoKey):
        await guard.admit(NOTHING, Scope.READ)
    await key_for(app, Scope.READ, life=SOON)
    clock.turn(3600)
    timer.now += 3600
    with pytest.raises(NoKey):
        await guard.admit(NOTHING, Scope.READ)


async def test_once_every_key_is_forgotten_this_machine_needs_none(app: Demora, guard: Guard) -> None:
    key = await key_for(app, Scope.READ)
    await revoke(app, key)
    await (await app.open()).keys.forget(id_of(key))
    await guard.admit(NOTHING, Scope.ADMIN)


async def test_a_service_that_others_can_reach_needs_a_key_even_if_there_is_none(app: Demora) -> None:
    settings = Settings(host="0.0.0.0")
    guard = Guard(app, settings, open_without_keys=opens_without_keys(settings))
    with pytest.raises(NoKey):
        await guard.admit(NOTHING, Scope.READ)
    with pytest.raises(BadKey):
        await guard.admit(presenting(UNKNOWN), Scope.READ)


@pytest.mark.parametrize("form", ["bearer {}", "BEARER {}", "Bearer  {}", "Bearer {} "])
async def test_a_key_is_presented_as_a_bearer(app: Demora, guard: Guard, form: str) -> None:
    await guard.admit(Headers({"authorization": form.format(await key_for(app, Scope.READ))}), Scope.READ)


@pytest.mark.parametrize("form", ["{}", "Basic {}", "Bearer", "Bearer {}x", "Bearer x {}", "Bearer {} {}", ""])
async def test_a_key_that_is_presented_otherwise_is_not_valid(app: Demora, guard: Guard, form: str) -> None:
    text = await key_for(app, Scope.ADMIN)
    with pytest.raises(BadKey):
        await guard.admit(Headers({"authorization": form.format(text, text)}), Scope.READ)


async def test_two_keys_at_once_are_none(app: Demora, guard: Guard) -> None:
    one = ("authorization", f"Bearer {await key_for(app, Scope.ADMIN)}")
    with pytest.raises(BadKey):
        await guard.admit(Headers(raw=[(name.encode(), value.encode()) for name, value in (one, one)]), Scope.READ)


async def test_within_a_second_a_key_is_looked_up_once(app: Demora, guard: Guard, store: Counted, timer: Timer) -> None:
    key = await key_for(app, Scope.READ)
    for _ in range(100):
        await guard.admit(presenting(key), Scope.READ)
    assert store.api_keys.looks == 1
    timer.now += FRESH
    await guard.admit(presenting(key), Scope.READ)
    assert store.api_keys.looks == 2


async def test_within_a_second_the_lack_of_keys_is_looked_up_once(guard: Guard, store: Counted, timer: Timer) -> None:
    for _ in range(100):
        await guard.admit(NOTHING, Scope.READ)
    assert store.api_keys.looks == 1
    timer.now += FRESH
    await guard.admit(NOTHING, Scope.READ)
    assert store.api_keys.looks == 2


async def test_requests_without_a_key_share_a_look_for_keys(guard: Guard, store: Counted, timer: Timer) -> None:
    await asyncio.gather(*(guard.admit(NOTHING, Scope.READ) for _ in range(64)))
    assert store.api_keys.looks == 1
    timer.now += FRESH
    await asyncio.gather(*(guard.admit(NOTHING, Scope.READ) for _ in range(64)))
    assert store.api_keys.looks == 2


async def test_a_request_that_leaves_takes_the_look_for_keys_from_no_other(guard: Guard, store: Counted) -> None:
    leaving, staying = (asyncio.ensure_future(guard.admit(NOTHING, Scope.READ)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying is None
    assert store.api_keys.looks == 1


async def test_all_requests_without_a_key_learn_that_the_keys_cannot_be_read(guard: Guard, store: Counted) -> None:
    store.api_keys.hidden = StoreBusy("busy")
    asked = await asyncio.gather(*(guard.admit(NOTHING, Scope.READ) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in asked] == [StoreBusy] * 3
    store.api_keys.hidden = None
    assert await guard.admit(NOTHING, Scope.READ) is None


async def test_a_guard_serves_one_event_loop_after_another(app: Demora, guard: Guard) -> None:
    """A look that another loop left unfinished is not waited for."""
    left = asyncio.new_event_loop()
    guard._looking = left.create_future()
    left.close()
    assert await guard.admit(NOTHING, Scope.READ) is None


async def test_a_revocation_takes_effect_within_a_second(app: Demora, guard: Guard, timer: Timer) -> None:
    assert FRESH <= 1
    key = await key_for(app, Scope.READ)
    await guard.admit(presenting(key), Scope.READ)
    await revoke(app, key)
    timer.now += FRESH
    with pytest.raises(BadKey):
        await guard.admit(presenting(key), Scope.READ)


async def test_an_expiry_takes_effect_at_its_moment(app: Demora, guard: Guard, timer: Timer) -> None:
    key = await key_for(app, Scope.READ, life=SOON)
    await guard.admit(presenting(key), Scope.READ)
    timer.now += SOON.total_seconds()
    with pytest.raises(BadKey):
        await guard.admit(presenting(key), Scope.READ)


async def test_a_wrong_secret_is_refused_also_while_the_key_is_known(app: Demora, guard: Guard) -> None:
    key = await key_for(app, Scope.READ)
    await guard.admit(presenting(key), Scope.READ)
    with pytest.raises(BadKey):
        await guard.admit(presenting(key[:-1] + ("x" if key[-1] != "x" else "y")), Scope.READ)


async def test_the_last_use_is_noted_once_a_minute(
    app: Demora, guard: Guard, store: Counted, clock: TestClock, timer: Timer
) -> None:
    key = await key_for(app, Scope.READ)
    await guard.admit(presenting(key), Scope.READ)
    first = clock.now()
    assert (await eventually(store.api_keys.all, lambda ring: ring.keys[0].last_used_at)).keys[0].last_used_at == first
    for _ in range(59):
        clock.turn(1)
        timer.now += 1
        await guard.admit(presenting(key), Scope.READ)
    assert (store.api_keys.notes, (await store.api_keys.all()).keys[0].last_used_at) == (1, first)
    clock.turn(1)
    timer.now += 1
    await guard.admit(presenting(key), Scope.READ)
    await eventually(store.api_keys.all, lambda ring: ring.keys[0].last_used_at == clock.now())


async def test_a_use_that_cannot_be_noted_fails_no_request(
    app: Demora, guard: Guard, store: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    store.api_keys.trouble = StoreBusy("locked")
    key = await key_for(app, Scope.READ)
    await guard.admit(presenting(key), Scope.READ)
    await eventually(lambda: asyncio.sleep(0, caplog.text))
    assert caplog.messages == [f"API key {id_of(key)}: its use could not be recorded: StoreBusy"]


async def test_a_key_that_is_refused_counts_as_no_use(app: Demora, guard: Guard, store: Counted) -> None:
    key = await key_for(app, Scope.READ)
    await revoke(app, key)
    with pytest.raises(BadKey):
        await guard.admit(presenting(key), Scope.READ)
    assert store.api_keys.notes == 0


class Broken(SqliteStore):
    """A store that cannot find a job."""

    async def find(self, query: Query) -> Page:
        raise RuntimeError("no luck")


def everything_in(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


async def test_a_key_is_never_told_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in an answer, nor in the log of any library, nor in the database, nor in what a list shows."""
    caplog.set_level(logging.DEBUG)
    said = ""
    async with Demora(store=Broken(tmp_path / "jobs.db")) as app:
        good, gone = await key_for(app, Scope.READ, Scope.SUBMIT), await key_for(app, Scope.ADMIN)
        await revoke(app, gone)
        transport = httpx.ASGITransport(make_api(app, Settings(host="0.0.0.0")))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            for key in (good, gone):
                for path in ("/", JOBS, "/nope", f"{JOBS}/{id_of(key)}", "/api/v1/openapi.json"):
                    for headers in (bearer(key), {"authorization": key}, {"authorization": f"Basic {key}"}):
                        answer = await http.get(path, headers=headers)
                        said += answer.text + str(answer.headers)
                said += (await http.post(JOBS, headers=bearer(key), json={"type": "demo.echo", "delay": -1})).text
            problem(await http.get(JOBS, headers=bearer(good)), 500)
        said += repr(await (await app.open()).keys.list())
    said += caplog.text + everything_in(tmp_path)
    assert "API key not valid" in said
    assert id_of(good) in everything_in(tmp_path)
    assert "GET /api/v1/jobs failed: RuntimeError" in said
    assert [key for key in (good, gone) if key.rpartition("_")[2] in said] == []
