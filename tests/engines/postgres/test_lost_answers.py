"""A connection that breaks in the middle of a write: what became of it is read, and nothing is lost or done twice."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from demora.core.access import Scope, key_text, make_key
from demora.core.filters import JobFilter
from demora.core.job import revision
from demora.core.outbound.webhook import Secret
from demora.core.pace import PaceRequest
from demora.core.schedules.definitions import Definition
from demora.core.schedules.schedule import job_of as job_of_schedule
from demora.core.schedules.schedule_request import ScheduleRequest
from demora.core.states import Status
from demora.core.verdict import HandedBack, Raised, Snoozed
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection import connections, transactions
from demora.errors import StoreError
from demora.store.jobs import Answer, Change, Query, QueueChange, Report
from demora.store.schedules import Origin
from tests.builders import (
    BROKEN,
    DONE,
    LEASE,
    add_ids,
    add_one,
    claim,
    claim_one,
    ended_one,
    job_of,
    key,
    ms,
    new_job,
    seconds,
    settle,
    settlement,
    status_of,
    windows_of,
)
from tests.clock import TestClock
from tests.engines.postgres.race_verbs import FIRST_FIRE_TIME, SCHEDULE, a_schedule, firings
from tests.facts import eventually
from tests.servers import proxy as proxies
from tests.servers.proxy import Proxy
from tests.setups import emptied_schema

lost = pytest.mark.parametrize("arrives", [True, False], ids=["answer", "message"])
asked = pytest.mark.parametrize("nth", range(1, 5))  # a transaction of two statements is asked for in four messages


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return emptied_schema(tmp_path)


@pytest.fixture
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    async with proxies.before(url) as found:
        yield found


@pytest.fixture
def proxy(proxied: tuple[Proxy, str]) -> Proxy:
    return proxied[0]


@pytest.fixture
async def store(proxied: tuple[Proxy, str], schema: str) -> AsyncIterator[PostgresStore]:
    """A store with one connection, which runs through the proxy, and nothing else that speaks."""
    store = PostgresStore(proxied[1], PostgresOptions(schema=schema, connections=1, notify=False))
    await store.open()
    yield store
    await store.close()


async def ids(store: PostgresStore) -> set[str]:
    return {job.id for job in (await store.find(Query(limit=200))).jobs}


@lost
async def test_a_job_is_added_once_and_answered_as_new(store: PostgresStore, proxy: Proxy, arrives: bool) -> None:
    first = await add_one(store)
    asked_for = [new_job(), new_job(delay=seconds(60))]
    proxy.cut_at(arrives=arrives)
    answers = await store.add(asked_for)
    assert proxy.cuts == 1
    assert [(answer.id, answer.replayed) for answer in answers] == [(asked.id, False) for asked in asked_for]
    assert answers[1].scheduled_at - answers[1].created_at == seconds(60)
    assert await ids(store) == {first.id, *(asked.id for asked in asked_for)}


@lost
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
async def test_a_job_with_a_key_is_added_once_wherever_it_is_cut(
    store: PostgresStore, proxy: Proxy, nth: int, arrives: bool
) -> None:
    first = await add_one(store, key=key("warm"))
    asked = new_job(key=key("k"))
    proxy.cut_at(nth, arrives=arrives)
    [answer] = await store.add([asked])
    assert proxy.cuts == 1
    assert (answer.id, answer.replayed, answer.conflict) == (asked.id, False, False)
    assert await ids(store) == {first.id, asked.id}
    assert (await add_one(store, key=key("k"))).replayed


@lost
async def test_a_claim_gets_what_it_got(store: PostgresStore, proxy: Proxy, arrives: bool) -> None:
    await add_ids(store, {}, {}, {})
    warm = await claim_one(store)
    proxy.cut_at(arrives=arrives)
    claimed = await claim(store, 10)
    assert proxy.cuts == 1
    assert [job.lease.token for job in claimed.jobs] == [1, 1]
    assert warm.lease.id not in [job.lease.id for job in claimed.jobs]
    assert (await claim(store, 10)).jobs == []
    assert [await settle(store, job, DONE) for job in claimed.jobs] == [Status.COMPLETED] * 2


@lost
@pytest.mark.parametrize(
    ("outcome", "status", "attempts"),
    [
        (DONE, Status.COMPLETED, 1),
        (BROKEN, Status.FAILED, 1),
        (Raised("no"), Status.RETRYING, 1),
        (HandedBack(), Status.QUEUED, 0),
        (Snoozed(seconds(9)), Status.QUEUED, 0),
    ],
    ids=["success", "failure", "retry", "hand-back", "snooze"],
)
async def test_a_verdict_is_recorded_once_and_answered(
    store: PostgresStore, proxy: Proxy, arrives: bool, outcome, status: Status, attempts: int
) -> None:
    await add_ids(store, {}, {})
    await settle(store, await claim_one(store), BROKEN)
    job = await claim_one(store)
    proxy.cut_at(arrives=arrives)
    assert await settle(store, job, outcome, log=((ms(0), "line"),)) is status
    assert proxy.cuts == 1
    after = await job_of(store, job.lease.id)
    assert (after.status, len(after.attempts), [line.line for line in after.log]) == (status, attempts, ["line"])
    assert after.retry_count == (1 if status is Status.RETRYING else 0)
    [(_, tally)] = await windows_of(store)
    assert tally.completed + tally.failed + tally.retried + tally.returned == 2  # this run and the one before


@lost
async def test_a_verdict_that_gave_way_to_a_cancel_is_answered_so(store: PostgresStore, proxy: Proxy, arrives: bool) -> None:
    await add_ids(store, {}, {})
    await settle(store, await claim_one(store), BROKEN)
    job = await claim_one(store)
    await store.cancel([job.lease.id])
    proxy.cut_at(arrives=arrives)
    assert await settle(store, job, Raised("no")) is Status.CANCELLED
    assert proxy.cuts == 1


@lost
async def test_lines_of_a_renewal_are_kept_once(store: PostgresStore, proxy: Proxy, arrives: bool) -> None:
    await add_one(store)
    job = await claim_one(store)
    await store.renew([Report(job.lease, ms(0))], lease=LEASE)
    proxy.cut_at(arrives=arrives)
    heard = await store.renew([Report(job.lease, ms(0), log=((ms(0), "a"), (ms(0), "b")))], lease=LEASE)
    assert proxy.cuts == 1
    assert heard.lost == frozenset()
    assert [line.line for line in (await job_of(store, job.lease.id)).log] == ["a", "b"]


@lost
@asked
async def test_a_cancel_is_answered_as_done(store: PostgresStore, proxy: Proxy, nth: int, arrives: bool) -> None:
    warm, waiting, running = await add_ids(store, {"delay": seconds(60)}, {"delay": seconds(60)}, {})
    await store.cancel([warm])
    await claim_one(store)
    proxy.cut_at(nth, arrives=arrives)
    answers = await store.cancel([waiting, running])
    assert proxy.cuts == 1
    assert [(answer.did, answer.status) for answer in answers] == [(True, Status.CANCELLED), (True, Status.PROCESSING)]
    assert await status_of(store, waiting) is Status.CANCELLED
    assert (await job_of(store, running)).cancel_requested_at is not None


@lost
@asked
async def test_a_retry_by_hand_starts_one_new_generation(
    store: PostgresStore, proxy: Proxy, nth: int, arrives: bool
) -> None:
    warm, id = [await ended_one(store, Status.FAILED) for _ in range(2)]
    await store.retry([warm])
    proxy.cut_at(nth, arrives=arrives)
    [answer] = await store.retry([id])
    assert proxy.cuts == 1
    assert (answer.did, answer.status, (await job_of(store, id)).generation) == (True, Status.QUEUED, 2)


@lost
@pytest.mark.parametrize("nth", range(1, 6))
async def test_a_removal_is_answered_as_done(store: PostgresStore, proxy: Proxy, nth: int, arrives: bool) -> None:
    warm, id = [await ended_one(store, Status.FAILED) for _ in range(2)]
    await store.remove([warm])
    proxy.cut_at(nth, arrives=arrives)
    assert await store.remove([id]) == [Answer(True, Status.FAILED)]
    assert proxy.cuts == 1
    assert await store.get(id) is None


@lost
@asked
async def test_what_another_caller_did_before_is_not_answered_as_ours(
    store: PostgresStore, proxy: Proxy, nth: int, arrives: bool
) -> None:
    cancelled, retried = await add_one(store, delay=seconds(60)), await ended_one(store, Status.FAILED)
    for _ in range(2):  # the statements are prepared by the second
        await store.cancel([cancelled.id])
        await store.retry([retried])
    proxy.cut_at(nth, arrives=arrives)
    assert await store.cancel([cancelled.id]) == [Answer(False, Status.CANCELLED)]
    proxy.cut_at(nth, arrives=arrives)
    assert await store.retry([retried]) == [Answer(False, Status.QUEUED)]
    assert proxy.cuts == 2
    assert (await job_of(store, retried)).generation == 2


@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_what_another_caller_does_after_a_lost_answer_is_not_taken_for_ours(
    store: PostgresStore, proxy: Proxy, schema: str, url: str, verb: str
) -> None:
    """Our commit arrives and its answer is lost. Before we ask again, another caller undoes what we did."""
    id = (await add_one(store, delay=seconds(60))).id if verb == "cancel" else await ended_one(store, Status.FAILED)
    undo = {"cancel": "retry", "retry": "cancel"}[verb]
    other = PostgresStore(url, PostgresOptions(schema=schema, connections=1, notify=False))
    await other.open()
    proxy.cut_commit(1, "before the answer")
    proxy.refusing = True  # so that we do not ask again yet
    asked = asyncio.ensure_future(getattr(store, verb)([id]))
    await eventually(lambda: _cuts(proxy))
    assert (await getattr(other, undo)([id]))[0].did
    proxy.refusing = False
    [answer] = await asked
    assert answer.did
    assert (await job_of(other, id)).generation == 2
    assert (await job_of(other, id)).status is {"cancel": Status.QUEUED, "retry": Status.CANCELLED}[verb]
    await other.close()


async def _cuts(proxy: Proxy) -> int:
    return proxy.cuts


@lost
async def test_a_change_is_made_whatever_is_lost(store: PostgresStore, proxy: Proxy, arrives: bool) -> None:
    added = await add_one(store, delay=seconds(60))
    await store.change(added.id, Change(delay=seconds(50)))
    proxy.cut_at(arrives=arrives)
    assert (await store.change(added.id, Change(delay=seconds(30)))).did
    after = await job_of(store, added.id)
    assert (proxy.cuts, after.due_at - after.created_at < seconds(45)) == (1, True)


@lost
@pytest.mark.parametrize("nth", range(1, 7))
async def test_a_change_of_a_revision_is_not_taken_for_the_change_of_another_wherever_it_is_cut(
    store: PostgresStore, proxy: Proxy, nth: int, arrives: bool
) -> None:
    warm = await add_one(store, delay=seconds(60))
    await store.change(warm.id, Change(tags=("t",), revisions=frozenset({revision(await job_of(store, warm.id))})))
    added = await add_one(store, delay=seconds(60))
    read = frozenset({revision(await job_of(store, added.id))})
    proxy.cut_at(nth, arrives=arrives)
    assert (await store.change(added.id, Change(tags=("t",), revisions=read))).did
    assert (proxy.cuts, (await job_of(store, added.id)).tags) == (1, ("t",))


@lost
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
async def test_a_queue_is_set_wherever_it_is_cut(store: PostgresStore, proxy: Proxy, nth: int, arrives: bool) -> None:
    await store.set_queue("warm", QueueChange(paused=True))
    proxy.cut_at(nth, arrives=arrives)
    assert (await store.set_queue("q", QueueChange(paused=True, reason="why"))).pause
    assert proxy.cuts == 1


async def test_a_read_is_simply_asked_again(store: PostgresStore, proxy: Proxy) -> None:
    added = await add_one(store)
    await status_of(store, added.id)
    proxy.cut_at()
    assert await status_of(store, added.id) is Status.QUEUED
    assert proxy.cuts == 1


async def test_where_the_server_is_gone_for_good_the_outcome_is_said_to_be_unknown(
    store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "RECHECK_LIMIT", 0.2)
    await add_one(store)
    proxy.cut_at()
    proxy.refusing = True
    with pytest.raises(StoreError, match="unknown"):
        await add_one(store)
    with pytest.raises(StoreError, match="nothing was written"):
        await add_one(store)


async def test_a_write_is_not_made_again_while_the_session_that_was_cut_off_may_still_make_it(
    store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "RECHECK_LIMIT", 0.1)
    monkeypatch.setattr(transactions, "FENCE", 100)
    there = {(await add_one(store)).id for _ in range(2)}  # the statement is prepared by the second
    while store._notifier._sending is not None:  # so that one connection alone is used from now on
        await asyncio.wait([store._notifier._sending])
    async with store._database.opened().session() as session:
        assert session.backend is not None
        pid = session.backend[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        proxy.cut_commit(1, "at once")
        with pytest.raises(StoreError, match="does not end; whether the write was committed is unknown"):
            await add_one(store)
        assert await ids(store) == there
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_many_writes_that_are_cut_lose_nothing_and_double_nothing(store: PostgresStore, proxy: Proxy) -> None:
    added, done = set[str](), 0
    for n in range(60):
        proxy.cut_at(1 + n % 3, arrives=n % 2 == 0)
        added |= {answer.id for answer in await store.add([new_job(), new_job()])}
        jobs = (await claim(store, 2)).jobs
        done += (await store.settle([settlement(job, DONE) for job in jobs])).count(Status.COMPLETED)
    assert proxy.cuts >= 50
    assert await ids(store) == added
    assert len(added) == 120
    assert done == 120
    assert {job.token for job in (await store.find(Query(limit=200))).jobs} == {1}


@lost
async def test_a_key_is_made_once_and_forgotten_once(store: PostgresStore, proxy: Proxy, arrives: bool) -> None:
    asked = make_key(key_text("abcdefghijk1", "s" * 43), "deploy", [Scope.READ])
    proxy.cut_at(arrives=arrives)
    made = await store.api_keys.add(asked)
    assert (await store.api_keys.all()).keys == [made]
    await store.api_keys.revoke(made.id)
    proxy.cut_at(arrives=arrives)
    assert await store.api_keys.forget(made.id)
    assert proxy.cuts == 2
    assert (await store.api_keys.all()).keys == []


@lost
async def test_a_key_whose_id_is_taken_is_refused_also_when_cut(store: PostgresStore, proxy: Proxy, arrives: bool) -> None:
    made = await store.api_keys.add(make_key(key_text("abcdefghijk1", "s" * 43), "deploy", [Scope.READ]))
    proxy.cut_at(arrives=arrives)
    with pytest.raises(StoreError):
        await store.api_keys.add(make_key(key_text(made.id, "t" * 43), "other", [Scope.ADMIN]))
    assert (await store.api_keys.all()).keys == [made]


async def test_while_the_server_is_away_the_driver_keeps_quiet(
    store: PostgresStore, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    await add_one(store)
    proxy.refusing = True
    proxy.cut_all()
    for _ in range(3):
        with pytest.raises(StoreError):
            await store.get(new_job().id)
    proxy.refusing = False
    await add_one(store)
    assert [record.name for record in caplog.records if record.name.startswith("asyncpg")] == []


@lost
@pytest.mark.parametrize("nth", range(1, 7))
async def test_an_end_and_what_tells_of_it_are_recorded_together_and_once(
    store: PostgresStore, proxy: Proxy, arrives: bool, nth: int
) -> None:
    """A settlement with a webhook is asked in six messages: the connection breaks at each of them."""
    hooked = {"webhook_url": "https://example.com/", "webhook_on_cancel": True}
    await add_ids(store, hooked, hooked, hooked | {"delay": seconds(60)}, hooked | {"delay": seconds(60)})
    await settle(store, await claim_one(store), DONE)
    [job] = (await claim(store, 1, queues=["default"])).jobs
    proxy.cut_at(nth, arrives=arrives)
    assert await settle(store, job, DONE) is Status.COMPLETED
    assert proxy.cuts == 1
    assert [one.cause for one in await store.webhooks.deliveries(job.lease.id)] == [job.lease.id]
    warm, waiting = [one.id for one in (await store.find(Query(JobFilter(frozenset({Status.QUEUED}), "default")))).jobs]
    await store.cancel([warm])
    proxy.cut_at(nth, arrives=arrives)
    [answer] = await store.cancel([waiting])
    assert (answer.did, answer.status, proxy.cuts) == (True, Status.CANCELLED, 2)
    assert [one.cause for one in await store.webhooks.deliveries(waiting)] == [waiting]


@pytest.mark.parametrize("noticed", [True, False])
async def test_connections_that_the_server_ended_while_nobody_used_them_are_not_used_again(
    store: PostgresStore, noticed: bool
) -> None:
    there = {(await add_one(store)).id for _ in range(3)}
    async with connections.connected(store.url) as other:
        await other.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'demora'")
    if noticed:
        await eventually(lambda: _open_ones(store), lambda number: number == 0)
    there |= {(await add_one(store)).id for _ in range(3)}
    assert await ids(store) == there


async def _open_ones(store: PostgresStore) -> int:
    return sum(map(connections._is_open, store._database.opened()._kept))


@lost
async def test_a_job_and_its_replay_in_one_call_are_answered_as_such(
    store: PostgresStore, proxy: Proxy, arrives: bool
) -> None:
    await add_one(store, key=key("warm"))
    asked_for = [new_job(key=key("k")), new_job(key=key("k"))]
    proxy.cut_at(5, arrives=arrives)
    answers = await store.add(asked_for)
    assert proxy.cuts == 1
    assert [(answer.id, answer.replayed) for answer in answers] == [(asked_for[0].id, False), (asked_for[0].id, True)]


# Parts of the store: schedules, webhooks, keys and paces


Verb = Callable[[PostgresStore], Awaitable[Any]]
URL, DIGEST, KEY_ID = "https://example.com/hook", b"d" * 32, "abcdefghijk1"
moments = pytest.mark.parametrize("moment", ["before it arrives", "at once", "before the answer"])


class Part(NamedTuple):
    """A verb of a part: what must be there for it, and what it leaves. Its answer and what it leaves are those of a call
    that nothing disturbs."""

    ready: Verb
    verb: Verb
    left: Verb


async def _nothing(store: PostgresStore) -> None:
    return None


async def _scheduled(store: PostgresStore) -> None:
    await store.schedules.add(a_schedule(), origin=Origin.API, by="cat")


async def _due(store: PostgresStore) -> None:
    await _scheduled(store)
    assert isinstance(store._database.clock, TestClock)
    store._database.clock.turn(60)


async def _missed(store: PostgresStore) -> None:
    """A fire time that is decided and has no job."""
    await _due(store)
    due = await store.schedules.due(limit=10)
    await store.schedules.fire(
        [replace(one, jobs=(), decision=replace(one.decision, fire_times=())) for one in firings(due, _OTHER_ID)]
    )


_ID, _OTHER_ID = (f"01900000-0000-7000-8000-00000000000{digit}" for digit in "ab")


async def _keyed(store: PostgresStore) -> None:
    await store.api_keys.add(make_key(key_text(KEY_ID, "s" * 43), "deploy", [Scope.READ]))
    await store.api_keys.open_session(DIGEST, KEY_ID, expires_in=seconds(60))


async def _revoked(store: PostgresStore) -> None:
    await _keyed(store)
    await store.api_keys.revoke(KEY_ID)


async def _fire(store: PostgresStore) -> Any:
    return await store.schedules.fire(firings(await store.schedules.due(limit=10), _ID))


async def _define(store: PostgresStore) -> Any:
    found = await store.schedules.define(Definition("shop", "p", (a_schedule(),)))
    return [(one.name, one.result) for one in found]


async def _schedules(store: PostgresStore) -> Any:
    found = await store.schedules.all()
    fire_times = await store.schedules.records(SCHEDULE, limit=10)
    return [(one.schedule, one.revision, one.run_count) for one in found], fire_times, await ids(store)


async def _add_schedule(store: PostgresStore) -> Any:
    return await store.schedules.add(a_schedule(), origin=Origin.API, by="ann")


PARTS = {
    "add a schedule": Part(_nothing, _add_schedule, _schedules),
    "add a schedule that is there": Part(_scheduled, _add_schedule, _schedules),
    "define a schedule": Part(_nothing, _define, _schedules),
    "change a schedule": Part(
        _scheduled, lambda store: store.schedules.change(SCHEDULE, ScheduleRequest(every="5m"), by="ann"), _schedules
    ),
    "remove a schedule": Part(_due, lambda store: store.schedules.remove(SCHEDULE), _schedules),
    "fire": Part(_due, _fire, _schedules),
    "trigger": Part(
        _scheduled, lambda store: store.schedules.trigger(SCHEDULE, job_of_schedule(a_schedule(), _ID)), _schedules
    ),
    "backfill": Part(
        _missed,
        lambda store: store.schedules.backfill(
            SCHEDULE, [(FIRST_FIRE_TIME, job_of_schedule(a_schedule(), _ID, fire_time=FIRST_FIRE_TIME))]
        ),
        _schedules,
    ),
    "foresee": Part(_scheduled, lambda store: store.schedules.foresee("2099a"), _schedules),
    "enable a URL": Part(
        lambda store: store.webhooks.disable(URL, "410"),
        lambda store: store.webhooks.enable(URL),
        lambda store: store.webhooks.disabled(),
    ),
    "forget a secret": Part(
        lambda store: store.webhooks.add_secret("s", Secret(b"s" * 32)),
        lambda store: store.webhooks.forget_secret("s"),
        lambda store: store.webhooks.signing(),
    ),
    "end a session": Part(
        _keyed, lambda store: store.api_keys.end_session(DIGEST), lambda store: store.api_keys.find_sessions([DIGEST])
    ),
    "forget a key": Part(_revoked, lambda store: store.api_keys.forget(KEY_ID), lambda store: store.api_keys.all()),
    "set a pace": Part(
        _nothing,
        lambda store: store.paces.set("q", PaceRequest(burst=3), by="ann"),
        lambda store: store.paces.changes("q", limit=10),
    ),
}
ENDING = ("remove a schedule", "enable a URL", "forget a secret", "end a session", "forget a key")


async def _done(url: str, schema: str, part: Part) -> tuple[Any, Any]:
    """What a part answers and leaves if nothing is cut."""
    async with _at_the_clock(url, schema) as store:
        await part.ready(store)
        return await part.verb(store), await part.left(store)


@contextlib.asynccontextmanager
async def _at_the_clock(url: str, schema: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=1, notify=False), clock=TestClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@moments
@pytest.mark.parametrize("name", PARTS)
async def test_a_verb_whose_commit_is_cut_answers_and_leaves_what_it_does_in_peace(
    proxied: tuple[Proxy, str], url: str, schema: str, tmp_path: Path, name: str, moment: Any
) -> None:
    part, (proxy, through) = PARTS[name], proxied
    expected = await _done(url, emptied_schema(tmp_path / "whole"), part)
    async with _at_the_clock(through, schema) as store:
        await part.ready(store)
        proxy.cut_commit(1, moment)
        assert (await part.verb(store), await part.left(store)) == expected
    assert proxy.cuts == 1


@pytest.mark.parametrize("name", ENDING)
async def test_what_another_caller_ended_is_not_answered_as_ours(
    proxied: tuple[Proxy, str], url: str, schema: str, name: str
) -> None:
    """Our write is lost before it arrives. Before we ask again, another caller does the same."""
    part, (proxy, through) = PARTS[name], proxied
    async with _at_the_clock(through, schema) as store, _at_the_clock(url, schema) as other:
        await part.ready(store)
        proxy.cut_commit(1, "before it arrives")
        proxy.refusing = True
        asked = asyncio.ensure_future(part.verb(store))
        await eventually(lambda: _cuts(proxy))
        assert await part.verb(other) is True
        proxy.refusing = False
        assert await asked is False


async def test_a_removal_whose_answer_is_lost_leaves_the_schedule_that_another_caller_adds(
    proxied: tuple[Proxy, str], url: str, schema: str
) -> None:
    proxy, through = proxied
    async with _at_the_clock(through, schema) as store, _at_the_clock(url, schema) as other:
        await _scheduled(store)
        proxy.cut_commit(1, "before the answer")
        proxy.refusing = True
        asked = asyncio.ensure_future(store.schedules.remove(SCHEDULE))
        await eventually(lambda: _cuts(proxy))
        assert await _add_schedule(other) is not None
        proxy.refusing = False
        assert await asked is True
        assert await store.schedules.get(SCHEDULE) is not None
