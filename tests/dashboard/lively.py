"""A system in the middle of its work, for tests in a browser and for pictures: every state, a pace, failures, schedules."""

import math
from datetime import timedelta

from demora.client.client import Client
from demora.core.outbound.webhook import QUEUE as WEBHOOKS
from demora.core.states import Status
from demora.core.verdict import Raised, Succeeded
from demora.store.jobs import ClaimedJob, Report
from demora.store.statistics import Depth
from tests.builders import claim, claim_one, settle
from tests.clock import TestClock
from tests.conformance.test_schedules import fire
from tests.dashboard.conftest import register

FAILURES = (*["ProviderTimeout: no answer within 10 s"] * 7, "KeyError: 'customer'", "KeyError: 'customer'")
_BAD_MINUTES = (14, 16, 17, 18, 19, 21, 33, 44, 46)  # of the hour, with a failure each
OWN = ("demora.action", "demora.webhook")  # what every worker runs
TYPES = ("email.welcome", "email.digest", "report.build", "invoice.send", "image.resize")
TRACEBACK = """Traceback (most recent call last):
  File "app/handlers.py", line 41, in run
    answer = await provider.post("/messages", json=message_for(payload))
"""


async def make_lively(client: Client, clock: TestClock | None = None) -> dict[str, str]:
    """Fill a store, and return the ids of some jobs by what they are. With a clock, the last hour passes meanwhile."""
    named: dict[str, str] = {}
    await register_both(client)
    if clock is None:
        for n in range(24):
            await _completed(client, n)
        for n, error in enumerate(FAILURES[3:]):
            named["failed"] = await _failed(client, n, error, clock)
    else:
        named["failed"] = await _an_hour(client, clock)
    await _told(client, clock)
    await _waiting(client, named, clock)
    if clock is not None:
        clock.turn(1)
        await client.store.paces.release(["newsletter"])
        clock.turn(41)
    await register_both(client)
    await _running(client, named, clock)
    if clock is not None:
        clock.turn(5)
        await client.store.paces.release(["newsletter"])
        await fire(client.store)
        for job in (await claim(client.store, 10, queues=["default"])).jobs:
            await settle(client.store, job, Succeeded(b"{}"), ran=timedelta(milliseconds=80))
    return named


async def _completed(client: Client, n: int, clock: TestClock | None = None, load: int = 0) -> None:
    type, queue = TYPES[n % 5], "mail" if n % 2 else "default"
    await client.enqueue(type, {"customer": n}, queue=queue, name=f"{type} {1400 + n}")
    if clock is not None:
        clock.turn(ms=15 + (n * 7919) % 30 + 6 * load + ((n * 31) % 97 + 90 if n % 7 == 0 else 0))
    job = await claim_one(client.store, worker="worker-a-7f3c")
    if clock is not None:
        clock.turn(ms=40 + (n * 104_729) % 400)
    await settle(client.store, job, Succeeded(b'{"sent": true}'), ran=timedelta(milliseconds=40 + (n * 104_729) % 400))


async def _failed(client: Client, n: int, error: str, clock: TestClock | None) -> str:
    type = "email.digest" if error.startswith("Provider") else "invoice.send"
    added = await client.enqueue(type, {"n": n}, queue="mail", max_retries=0, tags=["vip"])
    job = await claim_one(client.store, worker="worker-b-19e0")
    if clock is not None:
        clock.turn(2)
    await settle(client.store, job, Raised(error, TRACEBACK + error), ran=timedelta(seconds=2))
    return added.id


async def _an_hour(client: Client, clock: TestClock) -> str:
    """Let an hour pass with more and fewer jobs in its minutes, and count those that wait in each. Return the last job that
    failed."""
    n, failed = 0, ""
    await _schedules(client)
    for minute in range(60):
        begin = clock.now()
        if minute == 51:
            await fire(client.store)
            for job in (await claim(client.store, 10)).jobs:
                await settle(client.store, job, Succeeded(b"{}"), ran=timedelta(milliseconds=80))
        load = 9 + round(5 * math.sin(minute / 8) + 2 * math.sin(minute / 2.3))
        for _ in range(load):
            await _completed(client, n, clock, load)
            n += 1
        if minute in _BAD_MINUTES:
            failed = await _failed(client, minute, FAILURES[_BAD_MINUTES.index(minute)], clock)
        mail = Depth(max(0, load - 8), 42 + round(18 * math.sin(minute / 11)))
        letters = Depth(0, max(0, 30 - minute // 2) + 8)
        await client.store.statistics.sample({"mail": mail, "newsletter": letters, "exports": Depth(1, 0)})
        clock.turn(60 - (clock.now() - begin).total_seconds())
    return failed


async def _told(client: Client, clock: TestClock | None) -> None:
    """Have one webhook delivered and three refused by their host."""
    for n, host in enumerate(["hooks.shop.example", *["old.partner.example"] * 3]):
        url = f"https://{host}/jobs?token=secret"
        await client.enqueue("invoice.send", {"n": n}, queue="mail", webhook_url=url, name=f"invoice {2040 + n}")
        await settle(client.store, await claim_one(client.store, worker="worker-b-19e0", queues=["mail"]), Succeeded(b"{}"))
        delivery = await claim_one(client.store, worker="worker-a-7f3c", queues=[WEBHOOKS])
        if clock is not None:
            clock.turn(ms=300)
        answer = '{"status": 410, "excerpt": "this hook has moved"}'
        refused = Raised("HttpError: the server answered 410", answer, permanent=True)
        await settle(client.store, delivery, refused if n else Succeeded(b'{"status": 200}'))


async def register_both(client: Client) -> None:
    await register(client, id="worker-a-7f3c", host="app-1", pid=812, slots=8, types=(*TYPES, *OWN, "demo.echo"))
    await register(client, id="worker-b-19e0", host="app-2", pid=455, slots=8, queues=("mail",), types=(*TYPES, *OWN))


async def _running(client: Client, named: dict[str, str], clock: TestClock | None) -> None:
    for n, (type, progress) in enumerate([("report.build", 0.62), ("image.resize", None), ("email.welcome", None)]):
        added = await client.enqueue(type, {"n": n}, name=f"{type} for Q{n + 1}")
        job: ClaimedJob = await claim_one(client.store, worker="worker-a-7f3c", lease=timedelta(hours=1), queues=["default"])
        if clock is not None and progress:
            clock.turn(4)
        log = ((timedelta(seconds=1), "read 12,480 rows"), (timedelta(seconds=3), "drew 3 of 5 charts"))
        report = Report(job.lease, timedelta(seconds=4), progress, "drawing" if progress else None, log if progress else ())
        await client.store.renew([report], lease=timedelta(hours=1))
        named.setdefault("running", added.id)


async def _waiting(client: Client, named: dict[str, str], clock: TestClock | None) -> None:
    minutes = [3 + (n * 37) % 56 if n % 3 else 47 + n % 4 for n in range(60)]
    await client.enqueue_many(
        [("email.digest", {"n": n}, {"queue": "mail", "delay": f"{m}m"}) for n, m in enumerate(minutes)]
    )
    await client.set_pace("newsletter", gap="2m", burst=3, stagger="20s", by="ann")
    held = await client.enqueue_many(
        [("email.digest", {"n": n}, {"queue": "newsletter", "delay": "1ms", "tags": ["weekly"]}) for n in range(9)]
    )
    named["held"] = held[5].id
    for delay, name in (("4m", "remind of the cart"), ("3h", "welcome"), ("2d", "end of trial"), ("21d", "renewal")):
        named["scheduled"] = (await client.enqueue("email.welcome", {}, queue="mail", delay=delay, name=name)).id
    await client.enqueue("legacy.export", {}, queue="exports")
    await client.enqueue("image.resize", {}, queue="media", priority="HIGH", tags=["eu"])
    await client.pause("media", "object store is read-only until 10:30", by="ann")
    cancelled = await client.enqueue("invoice.send", {}, delay="1h")
    await client.cancel(cancelled.id)
    named["cancelled"] = cancelled.id
    assert (await client.get(cancelled.id)).status is Status.CANCELLED
    if clock is None:
        await _schedules(client)


async def _schedules(client: Client) -> None:
    for schedule, type, timing in (
        ("nightly-report", "report.build", {"cron": "0 3 * * *"}),
        ("weekly-digest", "email.digest", {"cron": "30 9 * * 1", "timezone": "Europe/Madrid"}),
        ("invoices", "invoice.send", {"cron": "0 8-18 * * 1-5"}),
        ("heartbeat", "demo.echo", {"every": "90s"}),
    ):
        await client.add_schedule(schedule, type, **timing)
    await client.pause_schedule("weekly-digest", reason="until the new template is live", by="ann")


# Other states for pictures

ERRORS = (
    "ProviderTimeout: no answer within 10 s",
    "KeyError: 'customer'",
    "HttpError: the server answered 503",
    "OutOfMemory: 512 MB",
)


async def make_failing(client: Client, clock: TestClock) -> dict[str, str]:
    """A bad hour: no worker is alive, queues are full and paused, and most jobs fail."""
    named = dict[str, str]()
    for n in range(90):
        type, error = TYPES[n % 5], ERRORS[n % 7 % 4]
        job = await client.enqueue(type, {"n": n}, queue=("mail", "default", "reports")[n % 3], max_retries=0)
        run = await claim_one(client.store, worker="worker-a-7f3c")
        clock.turn(2)
        await settle(client.store, run, Raised(error, TRACEBACK + error), ran=timedelta(seconds=2))
        named["failed"] = job.id
        clock.turn(36)
        await client.store.statistics.sample({"mail": Depth(n * 70 // 90, 0), "reports": Depth(n * n * 70 // 8100, 1)})
    report = {"queue": "reports", "max_retries": 5, "retry_delay": "4m", "name": "the yearly report"}
    named["retried"] = (await client.enqueue("report.build", {}, **report)).id
    for wait in (240, 130):
        run = await claim_one(client.store, worker="worker-a-7f3c", queues=["reports"])
        clock.turn(3)
        await settle(client.store, run, Raised(ERRORS[2], TRACEBACK + ERRORS[2]), ran=timedelta(seconds=3))
        clock.turn(wait)
    waiting = [(TYPES[n % 5], {"n": n}, {"queue": ("mail", "reports")[n % 2]}) for n in range(140)]
    named["ready"] = (await client.enqueue_many(waiting))[7].id
    await client.pause("mail", "provider down, ticket 4711", by="ann")
    clock.turn(45)
    await client.webhooks.disable("https://old.partner.example/jobs?token=secret", "410 Gone")
    return named
