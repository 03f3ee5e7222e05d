"""renew: leases that hold are extended, those that do not are lost, and reports are recorded with them."""

from demora.core.job import LogLine
from demora.core.states import Status
from demora.store.jobs import Lease, LeaseStatus, Report
from demora.store.store import Store
from tests.builders import (
    DONE,
    LEASE,
    NO_IDS,
    add_ids,
    add_one,
    claim,
    claim_one,
    job_of,
    ms,
    run_one,
    seconds,
    settle,
    settle_lapsed,
)
from tests.clock import TestClock

NOTHING = LeaseStatus(frozenset(), frozenset())


async def test_a_renewed_lease_holds_from_now_on(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(29)
    assert await store.renew([Report(job.lease, seconds(29))], lease=seconds(10)) == NOTHING
    assert (await job_of(store, job.lease.id)).lease_until == clock.now() + seconds(10)
    clock.turn(9.999)
    assert (await claim(store)).lapsed == []
    clock.turn(ms=1)
    assert len((await claim(store)).lapsed) == 1


async def test_a_lapsed_lease_is_lost_and_not_extended(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(LEASE.total_seconds())
    heard = await store.renew([Report(job.lease, LEASE, progress=0.5, log=((ms(1), "late"),))], lease=LEASE)
    assert heard == LeaseStatus(lost=frozenset({job.lease}), cancel_requested=frozenset())
    assert len((await claim(store)).lapsed) == 1
    after = await job_of(store, job.lease.id)
    assert (after.progress, after.log) == (None, ())


async def test_a_stale_token_is_lost_and_leaves_its_successor_alone(store: Store, clock: TestClock) -> None:
    await add_one(store, retry_delay=ms(0))
    old = await claim_one(store)
    clock.turn(LEASE.total_seconds())
    await settle_lapsed(store)
    new = await claim_one(store, worker="bob", lease=seconds(5))
    heard = await store.renew([Report(old.lease, LEASE, progress=0.9)], lease=seconds(500))
    after = await job_of(store, new.lease.id)
    assert heard.lost == {old.lease}
    assert (after.lease_until, after.progress) == (clock.now() + seconds(5), None)


async def test_an_ended_job_and_no_job_are_lost(store: Store) -> None:
    await add_one(store)
    ended = await run_one(store)
    leases = [Lease(id, 1) for id in [ended, *NO_IDS]]
    heard = await store.renew([Report(lease, ms(0)) for lease in leases], lease=LEASE)
    assert heard == LeaseStatus(lost=frozenset(leases), cancel_requested=frozenset())


async def test_one_call_renews_many_and_names_those_it_could_not(store: Store, clock: TestClock) -> None:
    await add_ids(store, {}, {}, {})
    short = await claim_one(store, lease=seconds(1))
    long = (await claim(store)).jobs
    clock.turn(2)
    heard = await store.renew([Report(job.lease, seconds(2)) for job in [long[0], short, long[1]]], lease=LEASE)
    assert heard.lost == {short.lease}
    clock.turn(29)
    assert [lapsed.lease for lapsed in (await claim(store)).lapsed] == [short.lease]


async def test_lines_of_a_report_that_comes_after_its_settlement_are_kept(store: Store) -> None:
    await add_one(store)
    job = await claim_one(store)
    await settle(store, job, DONE)
    await store.renew([Report(job.lease, ms(0), log=((ms(0), "late"),))], lease=LEASE)
    assert [line.line for line in (await job_of(store, job.lease.id)).log] == ["late"]


async def test_the_worker_hears_of_a_wish_to_cancel(store: Store) -> None:
    cancel_requested, _ = await add_ids(store, {}, {})
    jobs = (await claim(store)).jobs
    await store.cancel([cancel_requested])
    heard = await store.renew([Report(job.lease, ms(0)) for job in jobs], lease=LEASE)
    assert heard == LeaseStatus(lost=frozenset(), cancel_requested=frozenset({jobs[0].lease}))


async def test_progress_and_log_are_recorded(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    started = clock.now()
    clock.turn(2)
    lines = ((ms(500), "one"), (ms(1500), "two"))
    await store.renew([Report(job.lease, seconds(2), progress=0.25, message="quarter", log=lines)], lease=LEASE)
    seen = await job_of(store, job.lease.id)
    assert (seen.progress, seen.progress_message, seen.started_at) == (0.25, "quarter", started)
    assert seen.log == (LogLine(started + ms(500), "one"), LogLine(started + ms(1500), "two"))


async def test_a_report_that_says_nothing_forgets_nothing(store: Store) -> None:
    await add_one(store)
    job = await claim_one(store)
    await store.renew([Report(job.lease, ms(0), progress=0.5, message="half")], lease=LEASE)
    await store.renew([Report(job.lease, ms(0))], lease=LEASE)
    seen = await job_of(store, job.lease.id)
    assert (seen.progress, seen.progress_message) == (0.5, "half")


async def test_a_job_never_starts_before_its_claim(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    claimed = clock.now()
    clock.turn(1)
    await store.renew([Report(job.lease, seconds(600))], lease=LEASE)
    assert (await job_of(store, job.lease.id)).started_at == claimed


async def test_the_start_is_when_the_handler_began_and_stays(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(3)
    began = clock.now()
    for _ in range(2):
        clock.turn(5)
        await store.renew([Report(job.lease, clock.now() - began)], lease=LEASE)
        assert (await job_of(store, job.lease.id)).started_at == began


async def test_a_renewed_job_can_be_settled(store: Store, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    for _ in range(5):
        clock.turn(29)
        await store.renew([Report(job.lease, ms(0))], lease=LEASE)
    assert await settle(store, job, DONE) is Status.COMPLETED
