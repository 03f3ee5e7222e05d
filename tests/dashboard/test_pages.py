"""The pages: what they show, what their forms do, and what no page may do."""

import hashlib
import html
import itertools
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

import demora
from demora import Demora
from demora.api import make_api
from demora.api.access import Door
from demora.client import shared
from demora.client.client import Client
from demora.core.spans import timestamp
from demora.core.states import Status
from demora.core.verdict import Raised, Succeeded
from demora.dashboard import reading, static_files
from demora.dashboard.access import Access
from demora.dashboard.asgi import ROUTES, Dashboard
from demora.dashboard.pages.actions import FEW
from demora.errors import BadSetting, SearchTooSlow
from demora.handlers.builtin import DEMO_TYPES
from demora.runtime.front import Front
from demora.settings import Settings, load
from demora.store.jobs import Report
from demora.store.statistics import Depth
from tests.builders import BROKEN, claim_one, settle
from tests.dashboard.conftest import BASE, Browser, carried_out, hold, register, said
from tests.dashboard.lively import make_lively
from tests.facts import eventually
from tests.zones import PLACE, own_zones

PAGES = ("", "/jobs", "/queues", "/schedules", "/failures", "/system")
STATIC = Path(demora.__file__).parent / "dashboard" / "static"


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_of_an_empty_system_is_whole(browser: Browser, page: str) -> None:
    answer = await browser.get(f"/dashboard{page}")
    assert answer.status_code == 200
    assert answer.text.rstrip().endswith("</html>")
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("page", [*PAGES, "/jobs?q=queue:none"])
@pytest.mark.parametrize("demo", [True, False])
async def test_an_empty_panel_has_a_sentence_a_command_and_a_button(
    app: Demora, browser: Browser, page: str, demo: bool
) -> None:
    if not demo:
        app.registry.switch_off(["demo.echo"], "a test wants it")
    [empty] = re.findall(r'<div class="empty">(.*?)</div>', (await browser.get(f"/dashboard{page}")).text, re.DOTALL)
    parts = re.findall(r'<(h2|p|code)>|<(?:a|button)[^>]* class="(button)', empty)
    assert ["".join(one) for one in parts] == ["h2", "p", "code", "button"]


@pytest.mark.parametrize("page", PAGES)
async def test_no_page_has_a_script_or_a_style_of_its_own(browser: Browser, client: Client, page: str) -> None:
    await browser.act("/dashboard/first-minute")
    text = (await browser.get(f"/dashboard{page}")).text
    assert not re.search(r"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son\w+=|hx-on|js:|javascript:", text)


@pytest.mark.parametrize("page", PAGES)
async def test_a_refresh_gets_only_what_lives(browser: Browser, page: str) -> None:
    answer = await browser.live(f"/dashboard{page}")
    assert answer.status_code == 200
    assert "<html" not in answer.text
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", answer.headers["x-demora-now"])


async def test_a_browser_at_the_root_is_sent_to_the_dashboard_and_a_program_is_not(browser: Browser) -> None:
    assert (await browser.get("/")).headers["location"] == "/dashboard"
    assert (await browser.http.get("/")).json()["name"] == "demora"


async def test_an_unknown_page_is_not_found(browser: Browser) -> None:
    for path in ("/dashboard/nothing", "/dashboard/jobs/x/nothing", "/dashboard/jobs/no-such-id", "/dashboard/queues/none"):
        answer = await browser.get(path)
        assert answer.status_code == 404
        assert "</html>" in answer.text
    assert (await browser.get("/dashboardx")).status_code == 404


async def test_a_wrong_host_sees_nothing(browser: Browser) -> None:
    assert (await browser.get("/dashboard", host="evil.example")).status_code == 421


# Files


@pytest.mark.parametrize("line", (STATIC / "vendor" / "SHA256SUMS").read_text().splitlines(), ids=lambda line: line[66:])
def test_files_of_others_are_as_they_were_published(line: str) -> None:
    digest, name = line.split()
    assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest


async def test_all_files_together_are_small_and_kept_by_browsers(browser: Browser) -> None:
    page, size = (await browser.get("/dashboard")).text, 0
    for path in set(re.findall(r'"(/dashboard/static/[^"#]+)', page)):
        answer = await browser.http.get(path, headers={"accept-encoding": "gzip"})
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for name in static_files._FILES:
        found = static_files.static_file(name)
        assert found is not None
        size += len(found.packed or found.body)
    assert size < 150_000


async def test_there_is_no_way_out_of_the_folder_of_files(browser: Browser) -> None:
    for path in (
        "/static/x/../../asgi.py",
        "/static/x/%2e%2e/asgi.py",
        "/static/x/vendor/htmx.min.js",
        "/static/",
        "/static",
    ):
        assert (await browser.get(f"/dashboard{path}")).status_code == 404


# The first minute


async def test_the_first_minute_shows_a_pace_a_failure_and_a_countdown(browser: Browser, client: Client) -> None:
    assert "Add 20 demo jobs" in (await browser.get("/dashboard")).text
    answer = await browser.act("/dashboard/first-minute")
    assert answer.headers["hx-redirect"] == "/dashboard/jobs"
    page = await client.find(limit=50)
    assert len(page.jobs) == 20
    assert (await client.pacing("demo-paced")) is not None
    text = (await browser.get("/dashboard/jobs")).text
    assert len(re.findall(r"<tr class=\"row\"", text)) == 20
    assert "Add 20 demo jobs" not in (await browser.get("/dashboard")).text


# Jobs


async def test_each_waiting_row_says_why(browser: Browser, client: Client) -> None:
    await register(client)
    await client.set_pace("mail", gap="1h", burst=1)
    await hold(client, "mail", 3)
    await client.enqueue("demo.echo", delay="2h")
    await client.enqueue("no.handler")
    await client.enqueue("demo.echo", queue="closed")
    await client.pause("closed", "provider down")
    text = re.sub(r"<[^>]+>|\s+", " ", (await browser.get("/dashboard/jobs")).text)
    for words in ("held by pace, 2nd, about", "due", "no worker knows no.handler", "queue paused: provider down"):
        assert words in text


async def test_a_search_is_in_the_address_and_survives_a_reload(browser: Browser, client: Client) -> None:
    await client.enqueue_many([("demo.echo", {}, {"queue": "mail", "tags": ["vip"]}), ("demo.echo", {}, {"queue": "other"})])
    text = (await browser.get("/dashboard/jobs?q=queue:mail+tag:vip")).text
    assert 'value="queue:mail tag:vip"' in text
    assert text.count('<tr class="row"') == 1


@pytest.mark.parametrize("query", ["nope:x", "status:x", 'queue:"mail', "x" * 1100, "queue:a queue:b", "created:soon"])
async def test_a_search_that_is_not_understood_says_so(browser: Browser, query: str) -> None:
    answer = await browser.http.get("/dashboard/jobs", params={"q": query})
    assert answer.status_code == 200
    assert 'role="alert"' in answer.text


async def test_waiting_and_running_are_words_for_states(browser: Browser, client: Client) -> None:
    await client.enqueue("demo.echo")
    await claim_one(client.store)
    later = await client.enqueue("email.welcome", delay="1h")
    for query, shown in (("status:waiting", 1), ("status:running", 1), ("status:waiting,running", 2), ("type:email.*", 1)):
        text = (await browser.http.get("/dashboard/jobs", params={"q": query})).text
        assert text.count('<tr class="row"') == shown, query
    assert later.id in text


async def test_new_jobs_do_not_move_the_rows_that_are_shown(browser: Browser, client: Client) -> None:
    old = [await client.enqueue("demo.echo", delay="1h") for _ in range(3)]
    rows = ",".join(job.id for job in reversed(old))
    await client.enqueue_many([("demo.echo", {})] * 12)
    text = (await browser.live(f"/dashboard/jobs?rows={rows}")).text
    assert re.findall(r'data-id="([\w-]+)"', text) == [job.id for job in reversed(old)]
    assert "12 new" in text


async def failed_one(client: Client, **options: Any) -> str:
    job = await client.enqueue("demo.echo", max_retries=0, **options)
    await settle(client.store, await claim_one(client.store), BROKEN)
    return job.id


async def shown_ids(browser: Browser, path: str) -> list[str]:
    return re.findall(r'data-id="([\w-]+)"', (await browser.live(path)).text)


async def test_new_failures_are_counted_under_their_chip(browser: Browser, client: Client) -> None:
    old = [await failed_one(client) for _ in range(3)]
    path = "/dashboard/jobs?q=status:failed"
    rows = await shown_ids(browser, path)
    assert sorted(rows) == sorted(old)
    for _ in range(5):
        await failed_one(client)
    text = (await browser.live(f"{path}&rows={','.join(rows)}")).text
    assert "5 new" in text
    assert re.findall(r'data-id="([\w-]+)"', text) == rows


async def test_a_job_that_failed_again_is_not_new_and_hides_no_new_one(browser: Browser, client: Client) -> None:
    old = [await failed_one(client) for _ in range(2)]
    path = "/dashboard/jobs?q=status:failed"
    rows = await shown_ids(browser, path)
    await failed_one(client)
    await client.retry(old[0])
    await settle(client.store, await claim_one(client.store), Raised("again", permanent=True))
    assert "1 new" in (await browser.live(f"{path}&rows={','.join(rows)}")).text


async def test_of_waiting_jobs_only_those_due_before_a_shown_one_are_new(browser: Browser, client: Client) -> None:
    await client.enqueue_many([("demo.echo", {}, {"delay": f"{n}h"}) for n in range(1, 61)])
    path = "/dashboard/jobs?q=status:waiting"
    page = (await browser.get(path)).text
    rows = re.findall(r'data-id="([\w-]+)"', page)
    [more] = re.findall(r'data-next="([^"]+)"', page)
    assert len(rows) == 50

    async def look() -> str:
        return (await browser.live(f"{path}&rows={','.join(rows)}&next={more}")).text

    assert " new<" not in await look()
    await client.enqueue_many([("demo.echo", {}, {"delay": "30m"}), ("demo.echo", {}, {"delay": "100h"})])
    await eventually(look, lambda text: "1 new" in text)  # what is shown is shared for a second
    for id in rows:
        await client.cancel(id)
    await eventually(look, lambda text: "12 new" in text)


async def test_a_list_of_waiting_jobs_can_begin_with_the_newest(browser: Browser, client: Client) -> None:
    jobs = [(await client.enqueue("demo.echo", delay=delay)).id for delay in ("3h", "1h", "2h")]
    usual = await shown_ids(browser, "/dashboard/jobs?q=status:waiting")
    assert usual == [jobs[1], jobs[2], jobs[0]]
    assert await shown_ids(browser, "/dashboard/jobs?q=status:waiting&sort=created") == jobs[::-1]
    assert await shown_ids(browser, "/dashboard/jobs?q=status:waiting&sort=nonsense") == usual


# Actions on many jobs


async def test_selected_jobs_are_counted_first_and_then_acted_on(browser: Browser, client: Client) -> None:
    waiting, ended = await client.enqueue("demo.echo", delay="1h"), await client.enqueue("demo.echo", delay="1h")
    await client.cancel(ended.id)
    ids = f"{waiting.id},{ended.id}"
    asked = (await browser.get(f"/dashboard/actions/ask/cancel?ids={ids}")).text
    assert "Cancel 1 job?" in asked
    assert "This applies to 1 of 2 selected jobs." in asked
    answer = await browser.act("/dashboard/actions/cancel", ids=ids)
    assert said(answer)["words"] == "1 job cancelled; 1 job skipped (wrong state)."
    assert (await client.get(waiting.id)).status is Status.CANCELLED
    assert (await browser.act("/dashboard/actions/destroy", ids=waiting.id)).status_code == 404
    assert (await browser.act("/dashboard/actions/cancel", ids=",".join(map(str, range(201))))).status_code == 422


async def test_a_worker_acts_on_many_selected_jobs_while_a_page_follows_it(
    app: Demora, browser: Browser, client: Client
) -> None:
    made = await client.enqueue_many([("demo.echo", {}, {"delay": "1h"}) for _ in range(FEW + 2)])
    other = made.pop()
    ids = ",".join(job.id for job in made)
    await client.cancel(made[0].id)
    await register(client, types=("demora.action",))
    asked = (await browser.get(f"/dashboard/actions/ask/cancel?ids={ids}")).text
    assert f"Cancel {FEW} jobs?" in asked
    answer = await browser.act("/dashboard/actions/cancel", ids=ids)
    assert answer.headers["hx-redirect"].endswith(f"?of={FEW}")
    assert (await client.count("status:cancelled")).jobs == 1
    await client.cancel(made[1].id)
    await carried_out(app, answer)
    followed = (await browser.live(answer.headers["hx-redirect"])).text
    assert f"Done: {FEW - 1} jobs cancelled" in followed
    assert f"{FEW} jobs, selected by hand" in followed
    assert "1 left alone because it had changed" in followed
    assert (await client.get(other.id)).status is Status.QUEUED
    assert (await browser.act("/dashboard/actions/cancel", ids=ids)).status_code == 422


async def test_many_selected_jobs_run_now_and_are_retried_over_a_window(
    app: Demora, browser: Browser, client: Client
) -> None:
    made = await client.enqueue_many([("demo.echo", {}, {"delay": "1h", "queue": "later"}) for _ in range(FEW + 1)])
    ids = ",".join(job.id for job in made)
    await client.pause("later")
    await register(client, types=("demora.action",))
    await carried_out(app, await browser.act("/dashboard/actions/run", ids=ids))
    assert {(await client.get(job.id)).due_at <= datetime.now(UTC) for job in made} == {True}
    await carried_out(app, await browser.act("/dashboard/actions/cancel", ids=ids))
    assert "Spread over" in (await browser.get(f"/dashboard/actions/ask/retry?ids={ids}")).text
    await carried_out(app, await browser.act("/dashboard/actions/retry", ids=ids, over="21m"))
    due = [(await client.get(job.id)).due_at for job in made]
    assert {(right - left).total_seconds() for left, right in itertools.pairwise(due[1:])} == {60.0}


async def test_without_a_worker_the_request_itself_acts_on_many_selected_jobs(browser: Browser, client: Client) -> None:
    made = await client.enqueue_many([("demo.echo", {}, {"delay": "1h"}) for _ in range(FEW + 1)])
    ids = ",".join(job.id for job in made)
    assert "Spread over" not in (await browser.get(f"/dashboard/actions/ask/retry?ids={ids}")).text
    answer = await browser.act("/dashboard/actions/cancel", ids=ids)
    assert said(answer)["words"] == f"{FEW + 1} jobs cancelled."


async def test_selected_jobs_are_rescheduled_spread_and_reprioritised(browser: Browser, client: Client) -> None:
    jobs = [(await client.enqueue("demo.echo", delay="1h")).id for _ in range(4)]
    ids = ",".join(jobs)
    await browser.act("/dashboard/actions/reprioritise", ids=ids, priority="HIGH")
    await browser.act("/dashboard/actions/spread", ids=ids, over="40m", delay="10m")
    found = [await client.get(id) for id in jobs]
    assert {job.priority.name for job in found} == {"HIGH"}
    apart = {(right.due_at - left.due_at).total_seconds() for left, right in itertools.pairwise(found)}
    assert apart == {600.0}
    await browser.act("/dashboard/actions/reschedule", ids=ids, at="2031-05-01T09:00:00.000Z")
    assert {timestamp((await client.get(id)).due_at) for id in jobs} == {"2031-05-01T09:00:00.000Z"}
    for verb, form, words in (
        ("reschedule", {}, "delay: "),
        ("reschedule", {"at": "tomorrow"}, "at: "),
        ("reschedule", {"at": "2031-05-01T09:00"}, "at: "),
        ("spread", {}, "over: "),
        ("spread", {"over": "0s"}, "over: "),
        ("reprioritise", {"priority": "loud"}, "priority: "),
    ):
        refused = await browser.act(f"/dashboard/actions/{verb}", ids=ids, **form)
        assert said(refused)["words"].startswith(words), (verb, form)


async def test_a_retry_of_all_that_match_leaves_cancelled_jobs_alone(app: Demora, browser: Browser, client: Client) -> None:
    """A reminder for May that was cancelled must not be sent today."""
    reminder = await client.enqueue("demo.echo", queue="mail", delay="180d")
    await client.cancel(reminder.id)
    dead = await failed_one(client, queue="mail")
    chosen = (await browser.get("/dashboard/actions/choose?q=queue:mail")).text
    assert "Retry 1 job" in chosen
    assert "Delete 1 job" in chosen
    await carried_out(app, await browser.act("/dashboard/actions/retry", q="queue:mail"))
    assert (await client.get(dead)).generation == 2
    assert (await client.get(reminder.id)).status is Status.CANCELLED


async def test_cancelled_jobs_are_retried_if_the_search_names_them(app: Demora, browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo", delay="180d")
    await client.cancel(job.id)
    asked = (await browser.get("/dashboard/actions/ask/retry?q=status:cancelled")).text
    assert "Retry 1 job?" in asked
    assert "no matter when they were due" in asked
    await carried_out(app, await browser.act("/dashboard/actions/retry", q="status:cancelled"))
    assert (await client.get(job.id)).generation == 2


async def test_a_range_of_ended_jobs_is_retried_without_the_completed_ones(
    app: Demora, browser: Browser, client: Client
) -> None:
    dead = await failed_one(client)
    await client.enqueue("demo.echo")
    await settle(client.store, await claim_one(client.store), Succeeded(b"{}"))
    asked = await browser.http.get("/dashboard/actions/choose", params={"q": "ended:<1h"})
    assert "Retry 1 job" in asked.text
    assert "Cancel" not in asked.text
    await carried_out(app, await browser.act("/dashboard/actions/retry", q="ended:<1h"))
    assert (await client.get(dead)).generation == 2


async def test_an_action_on_all_that_match_is_counted_carried_out_and_followed(
    app: Demora, browser: Browser, client: Client
) -> None:
    for queue in ("mail", "mail", "other"):
        await client.enqueue("demo.echo", queue=queue, delay="1h")
    asked = (await browser.get("/dashboard/actions/choose?q=queue:mail")).text
    assert "Cancel 2 jobs" in asked
    assert "Retry 0 jobs" in asked
    assert (await client.count("status:cancelled")).jobs == 0
    confirmed = (await browser.get("/dashboard/actions/ask/cancel?q=queue:mail")).text
    assert "<code>status:waiting queue:mail</code>" in confirmed
    assert confirmed.count("Cancel 2 jobs") == 2
    assert "No live worker can carry this out" in confirmed
    answer = await browser.act("/dashboard/actions/cancel", q="queue:mail", count="2")
    there = answer.headers["hx-redirect"]
    assert there.endswith("?of=2")
    before = (await browser.get(there)).text
    assert "Waiting for a worker" in before
    assert "No live worker can carry this out" in before
    assert "dashboard, " in re.sub(r"<[^>]+>", "", before)
    await carried_out(app, answer)
    after = (await browser.live(there)).text
    assert "Done: 2 jobs cancelled" in after
    assert (await client.count("status:cancelled")).jobs == 2
    assert (await browser.get("/dashboard/actions/ask/cancel?q=status:completed")).status_code == 422
    assert (await browser.act("/dashboard/actions/cancel", q="status:completed")).status_code == 422
    assert (await browser.act("/dashboard/actions/run", q="queue:mail")).status_code == 422
    assert (await browser.get("/dashboard/actions/01890000-0000-7000-8000-000000000000")).status_code == 404


@pytest.mark.parametrize(("types", "warned"), [(("demo.echo",), True), (("demora.action",), False)])
async def test_a_dialog_says_if_no_live_worker_can_carry_an_action_out(
    browser: Browser, client: Client, types: tuple[str, ...], warned: bool
) -> None:
    await client.enqueue("demo.echo", delay="1h")
    await register(client, types=types)
    text = (await browser.get("/dashboard/actions/ask/cancel?q=")).text
    assert ("No live worker can carry this out" in text) is warned


async def test_a_job_is_added_by_hand(browser: Browser, client: Client) -> None:
    answer = await browser.act(
        "/dashboard/jobs/new",
        type="demo.echo",
        payload='{"a": 1}',
        queue="mail",
        delay="2h",
        tags="vip, eu",
        priority="HIGH",
    )
    job = await client.get(answer.headers["hx-redirect"].rpartition("/")[2])
    assert (job.payload, job.queue, job.tags, job.priority.name) == ({"a": 1}, "mail", ("vip", "eu"), "HIGH")
    for payload in ("{", "[1]" * 3, "NaN"):
        assert (await browser.act("/dashboard/jobs/new", type="demo.echo", payload=payload)).status_code == 422


async def test_the_form_of_a_job_is_made_from_the_annotations_of_its_handler(
    app: Demora, browser: Browser, client: Client
) -> None:
    @app.job("report.build")
    async def build(
        name: str, format: Literal["pdf", "html"], pages: int = 3, deep: bool = False, rows: list[int] | None = None
    ) -> None:
        """Build a report."""

    part = (await browser.get("/dashboard/jobs/new/fields?type=report.build")).text
    assert re.findall(r'name="field\.(\w+)"', part) == ["name", "format", "pages", "deep", "rows"]
    assert "<option>pdf</option>" in part
    assert 'name="payload"' in (await browser.get("/dashboard/jobs/new/fields?type=no.handler")).text
    form = {"field.name": "Q1", "field.format": "html", "field.pages": "", "field.rows": "[1, 2]", "field.deep": "true"}
    answer = await browser.act("/dashboard/jobs/new", type="report.build", **form)
    job = await client.get(answer.headers["hx-redirect"].rpartition("/")[2])
    assert job.payload == {"name": "Q1", "format": "html", "rows": [1, 2], "deep": True}
    refused = await browser.act("/dashboard/jobs/new", type="report.build", **(form | {"field.pages": "many"}))
    assert said(refused)["words"] == "pages: must be a number"


async def test_a_copy_keeps_what_the_job_had(browser: Browser, client: Client) -> None:
    url = "https://shop.example/hook?token=canary"
    options: dict[str, Any] = {"queue": "mail", "priority": "HIGH", "tags": ["vip"], "name": "a reminder"}
    options |= {"max_retries": 7, "retry_delay": "45s", "timeout": "90s", "expires_in": "2h", "webhook_url": url}
    job = await client.enqueue("demo.echo", {"a": 1}, delay="1h", **options)
    form = (await browser.get(f"/dashboard/jobs/new?copy={job.id}")).text
    assert "canary" not in form
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}
    payload = re.search(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    assert payload
    answer = await browser.act(
        "/dashboard/jobs/new", **fields, payload=html.unescape(payload[1]), priority="HIGH", delay="1h"
    )
    copy = await client.get(answer.headers["hx-redirect"].rpartition("/")[2])
    for name in ("payload", "queue", "priority", "tags", "name", "max_retries", "retry_delay", "timeout", "webhook_url"):
        assert getattr(copy, name) == getattr(job, name), name
    assert copy.expires_at is not None
    assert (await browser.act("/dashboard/jobs/new", type="demo.echo", max_retries="many")).status_code == 422


# One job


async def test_payload_result_and_log_are_pages_without_a_script(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo", {"card": "4111-canary"})
    run = await claim_one(client.store)
    log = ((timedelta(seconds=1), "read 12 rows"), (timedelta(seconds=2), "\x1b[31mred"))
    await client.store.renew([Report(run.lease, timedelta(seconds=2), None, None, log)], lease=timedelta(hours=1))
    page = (await browser.get(f"/dashboard/jobs/{job.id}")).text
    assert f'href="/dashboard/jobs/{job.id}/show/payload"' in page
    shown = (await browser.get(f"/dashboard/jobs/{job.id}/show/payload")).text
    assert "4111-canary" in shown
    assert shown.rstrip().endswith("</html>")
    part = (await browser.get(f"/dashboard/jobs/{job.id}/show/payload", **{"hx-request": "true"})).text
    assert "<html" not in part
    saved = await browser.get(f"/dashboard/jobs/{job.id}/download/log")
    assert saved.headers["content-type"] == "text/plain; charset=utf-8"
    assert [line.partition(" ")[2] for line in saved.text.splitlines()] == ["read 12 rows", "\\x1b[31mred"]
    assert (await browser.get(f"/dashboard/jobs/{job.id}/download/nonsense")).status_code == 404


async def test_a_job_is_rescheduled_to_a_time(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo", delay="1h")
    answer = await browser.act(f"/dashboard/jobs/{job.id}/reschedule", at="2031-05-01T09:00:00.000Z")
    assert said(answer)["words"] == "Due at {at}, priority normal."
    assert said(answer)["at"] == "2031-05-01T09:00:00.000Z"
    assert timestamp((await client.get(job.id)).due_at) == "2031-05-01T09:00:00.000Z"
    assert said(await browser.act(f"/dashboard/jobs/{job.id}/reschedule", at="soon"))["words"].startswith("at: ")


async def test_a_quick_run_did_not_take_zero_seconds(browser: Browser, client: Client) -> None:
    await client.enqueue("demo.echo")
    run = await claim_one(client.store)
    await settle(client.store, run, Succeeded(b"{}"))
    job = await client.get(run.lease.id)
    text = re.sub(r"<[^>]+>", "", (await browser.get("/dashboard/jobs")).text)
    took = re.search(r"took ([^,]+),", text)
    assert took
    assert took[1] == "under 1ms" if job.started_at == job.completed_at else took[1] != "0s"


# Times without a script


async def test_every_time_says_its_zone_without_a_script(browser: Browser, client: Client) -> None:
    named = await make_lively(client)
    pages = ["", "/jobs", "/queues/newsletter", "/schedules", *(f"/jobs/{named[one]}" for one in ("held", "failed"))]
    for path in pages:
        text = (await browser.get(f"/dashboard{path}")).text
        for written in re.findall(r"<time[^>]*>([^<]*)</time>", text):
            assert re.search(r"UTC$|ago$|^in |^now$", written), (path, written)
        if re.search(r"<text[^>]*data-at", text):
            assert "data-zone" in text, path


async def test_a_job_leads_to_its_schedule_its_deliveries_and_its_cause(browser: Browser, client: Client) -> None:
    named = await make_lively(client)
    job = (await client.find('"invoice 2041"')).jobs[0]
    [told] = await client.webhooks.of(job.id)
    assert f'href="/dashboard/jobs/{told.delivery.id}"' in (await browser.get(f"/dashboard/jobs/{job.id}")).text
    assert f'href="/dashboard/jobs/{job.id}"' in (await browser.get(f"/dashboard/jobs/{told.delivery.id}")).text
    fired = await client.trigger_schedule("invoices")
    assert 'href="/dashboard/schedules#invoices"' in (await browser.get(f"/dashboard/jobs/{fired.id}")).text
    assert "#invoices" not in (await browser.get(f"/dashboard/jobs/{named['failed']}")).text


async def test_a_payload_is_shown_only_when_asked_for(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo", {"card": "4111-canary"}, delay="1h")
    for path in ("", f"/jobs/{job.id}", "/jobs"):
        assert "4111-canary" not in (await browser.get(f"/dashboard{path}")).text
    shown = await browser.get(f"/dashboard/jobs/{job.id}/show/payload")
    assert "4111-canary" in shown.text
    assert shown.headers["cache-control"] == "no-store"
    saved = await browser.get(f"/dashboard/jobs/{job.id}/download/payload")
    assert saved.json() == {"card": "4111-canary"}
    assert "attachment" in saved.headers["content-disposition"]


async def test_of_a_long_payload_a_part_is_shown(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo", {"text": "x" * 100_000}, delay="1h")
    text = (await browser.get(f"/dashboard/jobs/{job.id}/show/payload")).text
    assert len(text) < 40_000
    assert "The first 32 KiB are shown." in text


async def test_a_failed_job_shows_its_error_and_is_retried(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo")
    await settle(client.store, await claim_one(client.store), BROKEN)
    text = (await browser.get(f"/dashboard/jobs/{job.id}")).text
    assert "ValueError: no" in text
    assert (await browser.act(f"/dashboard/jobs/{job.id}/retry")).status_code == 204
    assert (await client.get(job.id)).status is Status.QUEUED


async def test_run_now_says_first_what_will_happen(browser: Browser, client: Client) -> None:
    await client.set_pace("mail", gap="1h", burst=1)
    later = await client.enqueue("demo.echo", queue="mail", delay="1h")
    [held] = await hold(client, "mail", 1)
    paused = await client.enqueue("demo.echo", queue="closed")
    await client.pause("closed")
    for job, words in ((later, "then releases it in its turn"), (held, "does not change that"), (paused, "is paused")):
        assert words in (await browser.get(f"/dashboard/jobs/{job.id}/ask/run")).text
    await browser.act(f"/dashboard/jobs/{later.id}/reschedule", delay="0s")
    assert (await client.why(later.id)).reason == "held_by_pace"


async def test_a_paused_queue_has_no_next_release(browser: Browser, client: Client) -> None:
    await client.set_pace("mail", gap="1h", burst=1)
    await hold(client, "mail", 2)
    overview = (await browser.get("/dashboard")).text
    await browser.act("/dashboard/queues/mail/pause")
    paused = (await browser.get("/dashboard")).text
    found = [re.findall(r"2 held by pace(?:, next)?", text) for text in (overview, paused)]
    assert found == [["2 held by pace, next"], ["2 held by pace"]]
    assert "1 every 1h; holds all delayed jobs" in (await browser.get("/dashboard/queues/mail")).text


async def test_a_job_that_is_due_is_offered_what_would_let_it_run(browser: Browser, client: Client) -> None:
    """To run it now would change nothing, and it would lose its place in line."""
    await client.set_pace("mail", gap="1h", burst=1)
    later = await client.enqueue("demo.echo", queue="mail", delay="1h")
    [held] = await hold(client, "mail", 1)
    paused, ready = await client.enqueue("demo.echo", queue="closed"), await client.enqueue("demo.echo")
    paused_later = await client.enqueue("demo.echo", queue="closed", delay="1h")
    await client.pause("closed")
    words = ("Run now", "Edit the pace", "Resume the queue")
    for job, offer in ((later, words[0]), (held, words[1]), (paused, words[2]), (paused_later, words[0]), (ready, None)):
        text = (await browser.get(f"/dashboard/jobs/{job.id}/ask/run")).text
        assert [one for one in words if f"{one}</button>" in text] == ([offer] if offer else [])
    assert "It does not wait for its time" in text
    asked = [(await browser.get(f"/dashboard/jobs/{job.id}/ask/reschedule")).text for job in (ready, later)]
    assert ["It was due" in asked[0], "It is due" in asked[1]] == [True, True]


async def test_a_cancel_is_undone_with_its_due_time(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo", delay="1h", expires_in="2h")
    undo = said(await browser.act(f"/dashboard/jobs/{job.id}/cancel"))["undo"]
    assert undo == f"/dashboard/jobs/{job.id}/undo-cancel"
    assert (await browser.act(undo)).status_code == 204
    again = await client.get(job.id)
    assert (again.status, again.due_at, again.expires_at) == (Status.QUEUED, job.due_at, job.expires_at)
    assert (await browser.act(undo)).status_code == 409


async def test_a_refused_action_says_why(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.echo", delay="1h")
    answer = await browser.act(f"/dashboard/jobs/{job.id}/retry")
    assert answer.status_code == 409
    assert "retry" in said(answer)["words"]
    assert said(await browser.act(f"/dashboard/jobs/{job.id}/reschedule", delay="soon"))["words"].startswith("delay: ")


# Queues


async def test_the_pace_editor_previews_before_it_saves(browser: Browser, client: Client) -> None:
    await client.set_pace("mail", gap="1m", burst=1, by="ann")
    await hold(client, "mail", 5)
    text = (await browser.get("/dashboard/queues/mail/pace/preview?gap=10m&burst=2&stagger=1m")).text
    assert text.count("<circle") == 5
    assert "the last of these in 20m" in text
    assert (await client.pacing("mail")).pace.burst == 1  # type: ignore[union-attr]
    assert "burst: " in (await browser.get("/dashboard/queues/mail/pace/preview?gap=10m&burst=x")).text
    await browser.act("/dashboard/queues/mail/pace", gap="10m", burst="2", stagger="1m")
    pacing = await client.pacing("mail")
    assert pacing is not None
    assert (pacing.pace.burst, pacing.set_by) == (2, "dashboard")
    await browser.act("/dashboard/queues/mail/pace/off")
    assert await client.pacing("mail") is None


async def test_the_overview_says_what_is_wrong_and_mends_it(browser: Browser, client: Client) -> None:
    await register(client)
    await client.enqueue("report.build")
    await client.enqueue("demo.echo", queue="mail")
    await client.pause("mail", "provider down", by="ann")
    text = (await browser.get("/dashboard")).text
    assert "knows report.build" in text
    assert "<code>demora worker --app MODULE:APP</code>" in text
    assert "type%3Areport.build" in text
    words = re.sub(r"<[^>]+>", "", text)
    assert re.search(r"Queue mail is paused by ann since \d\d:\d\d:\d\d UTC: provider down. 1 job waits in it.", words)
    assert 'hx-post="/dashboard/queues/mail/resume"' in text
    await browser.act("/dashboard/queues/mail/resume")
    assert "is paused" not in (await browser.live("/dashboard")).text


async def test_demo_jobs_that_the_first_key_strands_are_cancelled_by_one_button(
    app: Demora, browser: Browser, client: Client
) -> None:
    await browser.act("/dashboard/first-minute")
    app.registry.switch_off(DEMO_TYPES, "a test wants it")
    await register(client, types=("demora.action",))
    text = (await browser.get("/dashboard")).text
    assert text.count("Demo jobs wait, and no live worker has their handlers.") == 1
    assert "are off once an API key exists" in text
    assert "demora worker --app" not in text
    [ask] = re.findall(r'hx-get="([^"]+)"[^>]*>Cancel the demo jobs', text)
    assert "Cancel 20 jobs" in (await browser.get(html.unescape(ask))).text
    await carried_out(app, await browser.act("/dashboard/actions/cancel", q="status:waiting type:demo.*"))
    assert (await client.count("status:waiting type:demo.*")).jobs == 0


async def test_a_warning_has_the_colour_of_no_state_and_stands_below_problems(browser: Browser, client: Client) -> None:
    await register(client, types=("demo.echo",))
    await client.enqueue("demo.echo", max_retries=0)
    await settle(client.store, await claim_one(client.store), Raised("Timeout"))
    await client.enqueue("report.build", delay="1h")
    await client.enqueue("image.resize")
    await client.enqueue("demo.echo", queue="mail")
    await client.pause("mail")
    text = (await browser.get("/dashboard")).text
    found = re.findall(r"<li( data-state=\"\w+\")?><svg.*?</svg>\s*<span class=\"words\">(.*?)[<.]", text, re.DOTALL)
    colours = [
        (colour[13:-1], next(word for word in ("image", "paused", "report", "failed for good") if word in words))
        for colour, words in found
    ]
    assert colours == [("failed", "image"), ("held", "paused"), ("", "report"), ("failed", "failed for good")]


async def test_what_only_a_shell_can_mend_has_the_command(browser: Browser, client: Client) -> None:
    await client.enqueue("demo.echo", queue="mail")
    assert 'data-copy="demora worker --app MODULE:APP"' in (await browser.get("/dashboard")).text
    await register(client, queues=("default",))
    await browser.act("/dashboard/queues/mail/resume")
    text = (await browser.get("/dashboard")).text
    assert "<code>demora worker --app MODULE:APP --queues mail</code>" in text
    assert "q=status%3Awaiting+queue%3Amail" in text


async def test_beside_very_many_waiting_jobs_the_counts_of_the_queues_are_judged(
    browser: Browser, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_EXAMINED", 0)
    await client.enqueue("demo.echo", queue="mail")
    await client.enqueue("demo.echo", queue="default")
    assert "No worker is alive, and jobs are ready to run." in (await browser.get("/dashboard")).text
    await register(client, queues=("default",))
    await browser.act("/dashboard/queues/mail/resume")
    text = (await browser.get("/dashboard")).text
    assert "1 job in queue mail, which no live worker serves." in text
    assert "in queue default" not in text


async def test_what_cannot_be_read_in_time_is_not_tried_for_each_page(
    browser: Browser, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Counter[str]()

    def too_slow(name: str) -> Callable[..., Awaitable[Any]]:
        async def read(*_: Any, within: timedelta) -> Any:
            tried[name] += 1
            raise SearchTooSlow(within.total_seconds())

        return read

    for name in ("failure_groups", "coming"):
        monkeypatch.setattr(client, name, too_slow(name))
    await client.enqueue("demo.echo")
    for _ in range(3):
        assert "Grouping takes too long just now." in (await browser.get("/dashboard/failures")).text
        assert "There are too many waiting jobs to count in time." in (await browser.get("/dashboard")).text
        assert (await browser.get("/dashboard/jobs/known")).json()["error"] == []
    assert tried == {"failure_groups": 1, "coming": 1}


async def test_the_overview_tells_dead_letters_from_failed_attempts(browser: Browser, client: Client) -> None:
    job = await client.enqueue("demo.fail", max_retries=1)
    for _ in range(2):
        await settle(client.store, await claim_one(client.store), Raised("KeyError: 'x'", ""))
        if (await client.get(job.id)).status is Status.RETRYING:
            await client.reschedule(job.id, delay="0s")
    text = " ".join((await browser.get("/dashboard")).text.split())
    assert "1 <small>dead letter</small>" in text
    assert "1 job failed for good in the last hour" in text
    assert "0 completed, 2 failed attempts" in text


async def test_the_overview_shows_what_comes_due(browser: Browser, client: Client) -> None:
    await client.enqueue_many([("demo.echo", {}, {"delay": "30m"})] * 3 + [("demo.echo", {}, {"delay": "20d"})])
    assert "3 jobs in the next hour" in (await browser.get("/dashboard")).text
    month = (await browser.get("/dashboard?span=week")).text
    assert "4 jobs in the next 30 days" in month
    there = re.findall(r'href="(/dashboard/jobs\?q=due[^"]+)"', month)
    assert len(there) == 2
    assert (await browser.get(there[0].replace("&amp;", "&"))).text.count('<tr class="row"') == 3


# Failures, schedules, system


async def test_failures_are_grouped_and_redriven_over_a_window(app: Demora, browser: Browser, client: Client) -> None:
    dead = [await failed_one(client) for _ in range(3)]
    await client.enqueue("demo.sleep", max_retries=0)
    await settle(client.store, await claim_one(client.store), Raised('Odd "error: no'))
    text = (await browser.get("/dashboard/failures")).text
    assert "4 dead letters" in text
    there = [html.unescape(one) for one in re.findall(r'hx-get="([^"]+ask/retry[^"]+)"', text)]
    assert len(there) == 2
    asked = (await browser.get(there[0])).text
    assert "Retry 3 jobs?" in asked
    assert "Retry 1 job?" in (await browser.get(there[1])).text
    query = dict(parse_qsl(urlsplit(there[0]).query))
    await carried_out(app, await browser.act("/dashboard/actions/retry", **query, over="30m"))
    due = [(await client.get(id)).due_at for id in dead]
    assert [round((at - due[0]).total_seconds()) for at in due] == [0, 600, 1200]
    assert "1 dead letter<" in (await browser.live("/dashboard/failures")).text
    assert (await browser.get("/dashboard/failures/ask/nonsense")).status_code == 404
    assert (await browser.get("/dashboard/actions/ask/nonsense?q=")).status_code == 404


async def test_groups_that_were_read_during_an_action_are_read_again_after_it(
    app: Demora, browser: Browser, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "REUSED_TIMES", 0)  # reads count as quick, however busy the machine is
    await failed_one(client)
    text = (await browser.get("/dashboard/failures")).text
    [there] = [html.unescape(one) for one in re.findall(r'hx-get="([^"]+ask/retry[^"]+)"', text)]
    begun = await browser.act("/dashboard/actions/retry", **dict(parse_qsl(urlsplit(there).query)))
    assert "1 dead letter<" in (await browser.get("/dashboard/failures")).text
    await carried_out(app, begun)
    await browser.get(begun.headers["hx-redirect"])
    assert "1 dead letter<" not in (await browser.get("/dashboard/failures")).text


async def test_a_schedule_is_drawn_triggered_paused_and_changed(browser: Browser, client: Client) -> None:
    await client.add_schedule("nightly", "demo.echo", cron="0 3 * * *")
    await client.add_schedule("constant", "demo.echo", every="5s")
    text = (await browser.get("/dashboard/schedules")).text
    assert "Every day at 03:00" in text
    assert text.count('class="cell s1"') in (7, 8)  # the days to come, and until 03:00 today
    assert "constant fires every half hour or more often and is left out" in text
    answer = await browser.act("/dashboard/schedules/nightly/trigger")
    assert (await client.get(answer.headers["hx-redirect"].rpartition("/")[2])).schedule_name == "nightly"
    await browser.act("/dashboard/schedules/nightly/pause", reason="holiday")
    assert (await client.schedule("nightly")).schedule.reason == "holiday"
    await browser.act("/dashboard/schedules/nightly/resume")
    preview = (await browser.get("/dashboard/schedules/nightly/preview?cron=0+4+*+*+1&timezone=Europe/Madrid")).text
    assert "Every Monday at 04:00, Europe/Madrid" in preview
    assert "cron" in (await browser.get("/dashboard/schedules/nightly/preview?cron=nonsense")).text
    await browser.act("/dashboard/schedules/nightly/change", cron="0 4 * * 1")
    assert (await client.schedule("nightly")).schedule.cron == "0 4 * * 1"


async def test_the_preview_of_a_schedule_begins_at_the_time_of_the_page(app: Demora, settings: Settings) -> None:
    access = Access(app, settings, ask_host=None, open_without_keys=True)
    board = Dashboard(app, settings, access, door=Door(settings), now=lambda: datetime(2030, 1, 31, 12, tzinfo=UTC))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(board), base_url=BASE) as http:
        await (await app.open()).add_schedule("nightly", "demo.echo", cron="0 3 * * *")
        text = (await http.get("/schedules/nightly/preview?cron=0+4+*+*+*")).text
    assert re.findall(r'datetime="([^"]+)" data-style="ago"', text)[:2] == [
        "2030-02-01T04:00:00.000Z",
        "2030-02-02T04:00:00.000Z",
    ]


async def test_a_schedule_in_an_unknown_zone_is_named_and_the_others_are_drawn(
    browser: Browser, client: Client, tmp_path: Path
) -> None:
    with own_zones(tmp_path) as zones:
        zones.set(timedelta(0))
        await client.add_schedule("broken", "demo.echo", cron="0 3 * * *", timezone=PLACE)
        await client.add_schedule("nightly", "demo.echo", cron="0 3 * * *")
        zones.take_away()
        answer = await browser.get("/dashboard/schedules")
        assert "is not a zone" in (await browser.get("/dashboard/schedules/broken/edit")).text
    assert answer.status_code == 200
    assert answer.text.count('class="cell s1"') in (7, 8)
    assert "Cannot fire" in answer.text


async def test_the_system_page_shows_workers_and_no_secret(app: Demora, browser: Browser, client: Client) -> None:
    await register(client, id="ann-1")
    await client.webhooks.disable("https://shop.example/hook?token=canary", "gone")
    text = (await browser.get("/dashboard/system")).text
    assert "ann-1" in text
    assert "shop.example" in text
    answer = await browser.act("/dashboard/system/enable", url="https://shop.example/hook?token=canary")
    assert answer.status_code == 204
    assert await client.webhooks.disabled() == []


async def test_the_slots_of_a_worker_are_drawn_with_their_number_beside_them(browser: Browser, client: Client) -> None:
    await make_lively(client)
    await register(client, id="large", slots=640)
    text = (await browser.get("/dashboard/system")).text
    assert "<th>Slots taken</th>" in text
    drawn = {
        words: squares for squares, words in re.findall(r'class="slot-count">(.*?)<span[^>]*>(.*?)</span>', text, re.DOTALL)
    }
    assert {words: (one.count('"fill"'), one.count("<rect")) for words, one in drawn.items()} == {
        "3 of 8": (3, 8),
        "0 of 8": (0, 8),
        "0 of 640": (0, 64),
    }


async def test_failing_hosts_are_named_and_delivered_to_again(browser: Browser, client: Client) -> None:
    await make_lively(client)
    text = (await browser.get("/dashboard/system")).text
    assert "old.partner.example" in text
    assert "hooks.shop.example" not in text
    assert "token=secret" not in text
    answer = await browser.act("/dashboard/system/redeliver", host="old.partner.example")
    assert said(answer)["words"] == "3 deliveries to old.partner.example tried again."
    assert (await client.count("status:failed queue:demora.webhooks")).jobs == 0
    assert "Every host accepts deliveries." in (await browser.live("/dashboard/system")).text


async def test_the_system_page_says_how_large_the_database_is(browser: Browser, client: Client) -> None:
    text = re.sub(r"<[^>]+>|\s+", " ", (await browser.get("/dashboard/system")).text)
    assert re.search(r"Size\s+[\d.]+ kB", text)
    assert said(await browser.act("/dashboard/system/line/compare"))["words"] == "There is no Redis line."


async def test_the_overview_shows_what_each_slot_runs(browser: Browser, client: Client) -> None:
    named = await make_lively(client)
    await client.store.statistics.sample({"mail": Depth(3, 4)})
    text = (await browser.get("/dashboard")).text
    slots = text[text.index("What each slot runs") :]
    assert slots.index("worker-a-7f3c") < slots.index(named["running"]) < slots.index("worker-b-19e0")
    assert "3 of 8" in slots
    assert '"mail"' in html.unescape(text[text.index("Waiting by queue") :])


async def test_a_queue_shows_its_runs_and_its_next_jobs(browser: Browser, client: Client) -> None:
    named = await make_lively(client)
    text = (await browser.get("/dashboard/queues/newsletter?span=day")).text
    assert "Next jobs" in text
    assert named["held"] in text
    assert text.count("data-chart=") == 2


async def test_the_rail_says_how_many_jobs_have_failed(browser: Browser, client: Client) -> None:
    assert 'id="failed-count" hidden' in re.sub(r' data-state="\w+"', "", (await browser.get("/dashboard/queues")).text)
    await failed_one(client)
    await browser.act("/dashboard/queues/default/resume")
    assert '<span class="n">1</span>' in (await browser.get("/dashboard/queues")).text
    assert 'data-failed="1"' in (await browser.live("/dashboard/schedules")).text


async def test_the_search_completes_types_errors_tags_and_priorities(browser: Browser, client: Client) -> None:
    await register(client, types=("report.build", "demora.action"))
    await failed_one(client, tags=["vip"])
    text = html.unescape((await browser.get("/dashboard/jobs")).text)
    known = re.search(r'data-known="(\{.*?\})" data-more', text)
    assert known
    values = json.loads(known[1])["values"]
    assert "report.build" in values["type"]
    assert "critical" in values["priority"]
    more = (await browser.get("/dashboard/jobs/known")).json()
    assert more == {"error": ["ValueError"], "tag": ["vip"]}


async def test_demo_jobs_are_not_offered_where_their_handlers_are_off(app: Demora, browser: Browser) -> None:
    assert "Add 20 demo jobs" in (await browser.get("/dashboard")).text
    app.registry.switch_off(["demo.echo"], "a test wants it")
    for page in ("", "/queues", "/jobs"):
        assert "demo jobs" not in (await browser.get(f"/dashboard{page}")).text


# Many pages, one read


async def test_many_open_pages_read_no_more_than_one(
    browser: Browser, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    read = client.activity

    async def counted(mark: int | None = None) -> object:
        nonlocal reads
        reads += 1
        return await read(mark)

    monkeypatch.setattr(client, "activity", counted)
    for _ in range(20):
        await browser.live("/dashboard")
        await browser.live("/dashboard/queues")
    assert reads == 1


async def test_the_setting_takes_the_dashboard_away(app: Demora, settings: Settings) -> None:
    front = Front(make_api(app, settings), None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        assert (await http.get("/dashboard")).status_code == 404
        assert (await http.get("/", headers={"accept": "text/html"})).json()["name"] == "demora"
    with pytest.raises(BadSetting, match="must be on or off"):
        load({"DEMORA_DASHBOARD": "maybe"})
    assert load({"DEMORA_DASHBOARD": "off"}).dashboard == "off"


def test_every_route_is_named_once() -> None:
    names = [(route.method, route.path) for route in ROUTES]
    assert len(names) == len(set(names))


BIG = "9" * 5000  # more digits than Python reads


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("jobs/new", {"type": "demo.echo", "max_retries": BIG}),
        ("jobs/new", {"type": "demo.echo", "max_retries": "\u00b2"}),
        ("queues/mail/pace", {"gap": "1s", "burst": BIG}),
    ],
)
async def test_a_number_that_is_too_long_is_refused(browser: Browser, path: str, form: dict[str, str]) -> None:
    assert (await browser.act(f"/dashboard/{path}", **form)).status_code == 422


async def test_an_action_is_followed_whatever_its_address_says_of_its_size(browser: Browser, client: Client) -> None:
    action = await client.actions.start("cancel", "queue:mail")
    assert (await browser.get(f"/dashboard/actions/{action.job.id}?of={BIG}")).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["jobs/new", "jobs/new/fields", "jobs/known", "actions/choose", "jobs/{}/show/payload", "jobs/{}/download/payload"],
)
async def test_a_page_without_a_live_part_has_none(browser: Browser, client: Client, path: str) -> None:
    job = await client.enqueue("demo.echo", {"text": "<b>"})
    answer = await browser.live(f"/dashboard/{path.format(job.id)}")
    assert (answer.status_code, "<b>" in answer.text) == (404, False)
