"""Texts that try to run, to hide or to break a page, and a system whose jobs are full of them."""

import itertools

from demora.client.client import Client
from demora.core.verdict import Raised
from tests.builders import claim_one, settle
from tests.dashboard.conftest import register

HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "'><svg onload=window.hacked=1>",
    "</textarea></title></script><script>window.hacked = 1</script>",
    "javascript:window.hacked=1",
    "{{ 7 * 7 }}{% raw %}${window.hacked = 1}",
    "\u202e\u2066gnp.exe\u2069\u200b\ufeff",
    "\x1b[31mred\x1b[0m\x07\x9b2J",
    '" hx-get="/x" hx-trigger="load" x="',
    "&lt;script&gt;window.hacked = 1&lt;/script&gt;",
    "W" * 400,
)


LONG = "W" * 64  # the longest name of a queue, and of a schedule


async def make_hostile(client: Client) -> dict[str, str]:
    """Fill a store with jobs that carry such texts wherever a caller can put them, and with workers, schedules, queues and
    hosts that do; return the ids of the failed jobs."""
    named = dict[str, str]()
    for n, (text, failing) in enumerate(itertools.product(HOSTILE, (False, True))):
        tags = [text[:50]] if text.isprintable() else []
        await client.enqueue("demo.echo", {text: text}, name=text[:100], tags=tags, max_retries=0)
        if failing:
            run = await claim_one(client.store)
            await settle(client.store, run, Raised(f"{text}: {text}", text * 3))
            named[f"failed-{n // 2}"] = run.lease.id
    await client.pause("default", HOSTILE[1][:100], by=HOSTILE[0][:60])
    await client.webhooks.disable("https://shop.example/hook", HOSTILE[0])
    await client.webhooks.disable(f"https://{LONG[:60].lower()}.example/hook", HOSTILE[-1])
    for n, text in enumerate(HOSTILE):
        if text.isprintable():
            await register(client, id=text[:80], host=text[:60], queues=(LONG,), types=(f"t{n}", "x" * 128))
    await client.enqueue("x" * 128, queue=LONG, delay="1h", tags=[LONG[:50]])
    await client.set_pace(LONG, gap="2m", burst=3, by=HOSTILE[0][:60])
    for name, text in ((LONG, HOSTILE[3]), ("nightly", HOSTILE[-1])):
        await client.add_schedule(name, "x" * 128, cron="0 3 * * *", queue=LONG)
        await client.pause_schedule(name, reason=text[:200], by=HOSTILE[1][:60])
    return named
