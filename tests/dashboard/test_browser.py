"""The dashboard in a real Chromium: every page and button, without an error on the console, and reachable for everybody."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from demora import Demora
from demora.api import make_api
from demora.client.client import Client
from demora.core.access import Scope
from demora.core.job import Priority
from demora.core.states import Status
from demora.dashboard.asgi import service_dashboard
from demora.runtime.front import Front
from demora.settings import Settings
from demora.store.jobs import Report
from demora.store.statistics import Depth
from demora.worker import Worker
from tests.builders import BROKEN, claim_one, settle
from tests.dashboard.chromium import chromium, serving, watched
from tests.dashboard.hostile import HOSTILE, LONG, make_hostile
from tests.dashboard.lively import make_lively
from tests.dashboard.screenshots import DIALOGS

pytestmark = [pytest.mark.slow]

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
AXE_DIGEST = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
PAGES = ("", "/jobs", "/jobs?q=status:failed", "/queues", "/queues/newsletter", "/schedules", "/failures", "/system")
SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture
async def site(app: Demora, settings: Settings) -> AsyncIterator[str]:
    async with serving(Front(make_api(app, settings), service_dashboard(app, settings))) as address:
        yield address


@pytest.fixture
async def engine() -> AsyncIterator[Chromium]:
    async with chromium() as found:
        yield found


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
async def test_pages_fit_the_screen_and_follow_the_rules_of_axe(
    engine: Chromium, site: str, client: Client, size: str, scheme: Literal["light", "dark"]
) -> None:
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_DIGEST
    named, broken = await make_lively(client), dict[str, str]()
    async with watched(engine, viewport=SIZES[size], color_scheme=scheme) as (_, page):
        action = await client.actions.start("retry", "status:failed")
        jobs = [f"/jobs/{named[one]}" for one in ("held", "running", "failed")]
        for path in (*PAGES, *jobs, f"/actions/{action.job.id}?of=6", f"/jobs/{named['failed']}/show/payload"):
            await page.goto(f"{site}/dashboard{path}")
            await expect(page.locator("h1")).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            broken |= dict.fromkeys(await _broken_rules(page), path)
    assert broken == {}


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "dark"), ("phone", "light")])
async def test_dialogs_follow_the_rules_of_axe(
    engine: Chromium, site: str, client: Client, size: str, scheme: Literal["light", "dark"]
) -> None:
    await make_lively(client)
    broken = dict[str, str]()
    asked = "/actions/ask/%s?q=status:%s"
    more = {verb: asked % (verb, "waiting") for verb in ("reschedule", "spread", "reprioritise")}
    async with watched(engine, viewport=SIZES[size], color_scheme=scheme) as (_, page):
        for name, (path, button) in DIALOGS.items():
            await page.goto(f"{site}/dashboard{path}")
            await page.get_by_role("button", name=button).first.click()
            await expect(page.locator("#dialog h2")).to_be_visible()
            broken |= dict.fromkeys(await _broken_rules(page), name)
        for name, path in more.items():
            await page.evaluate(
                "(path) => htmx.ajax('GET', path, {target: '#dialog', swap: 'innerHTML'})", f"/dashboard{path}"
            )
            await expect(page.locator("#dialog h2")).to_contain_text(name.capitalize())
            broken |= dict.fromkeys(await _broken_rules(page), name)
    assert broken == {}


async def _broken_rules(page: Page) -> list[str]:
    await page.evaluate(AXE.read_text())
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    found = await page.evaluate("(rules) => axe.run(document, rules)", rules)
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


async def test_from_an_empty_system_to_knowing_why_a_job_waits(engine: Chromium, site: str) -> None:
    async with watched(engine) as (_, page):
        await page.goto(site)
        await page.get_by_role("button", name="Add 20 demo jobs").click()
        await page.wait_for_url("**/dashboard/jobs")
        await expect(page.locator(".toast")).to_have_text("20 demo jobs added. Open a held one to see why it waits.")
        await expect(page.locator("tr.row")).to_have_count(20)
        await expect(page.locator("tr.row", has_text="held by pace").first).to_be_visible(timeout=10_000)
        await page.locator("tr.row", has_text="held by pace").first.get_by_role("link").click()
        await expect(page.locator(".why")).to_contain_text("It is held by the pace of its queue demo-paced")
        await expect(page.locator(".why .countdown")).to_have_text(re.compile(r"^\d+:\d\d$"))


async def test_a_queue_is_paused_with_a_reason_and_resumed(engine: Chromium, site: str, client: Client) -> None:
    await client.enqueue("demo.echo", queue="mail", delay="1h")
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/queues")
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_label("Reason").fill("provider down")
        await page.locator("#dialog").get_by_role("button", name="Pause").click()
        await expect(page.locator("tr.row")).to_contain_text("provider down")
        await expect(page.locator("#toasts")).to_contain_text("Queue mail is paused")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert (await client.queue("mail")).pause is None


async def test_the_pace_editor_shows_the_releases_while_one_types(engine: Chromium, site: str, client: Client) -> None:
    await make_lively(client)
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/queues/newsletter")
        await page.get_by_role("button", name="Edit pace").click()
        await page.get_by_label("Gap").fill("10m")
        await page.get_by_label("Burst").fill("9")
        await expect(page.locator("#pace-preview circle")).to_have_count(9)
        await page.get_by_label("Burst").fill("many")
        await expect(page.locator("#pace-preview")).to_contain_text("burst: must be a whole number")
        await page.get_by_label("Burst").fill("9")
        await expect(page.locator("#pace-preview circle")).to_have_count(9)
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("#dialog")).to_be_hidden()
    pacing = await client.pacing("newsletter")
    assert pacing is not None
    assert (pacing.pace.burst, pacing.set_by) == (9, "dashboard")


@pytest.mark.parametrize(("there", "button", "field", "text"), [
    ("queues/newsletter", "Edit pace", "Burst", "4"),
    ("schedules", "Edit", "Or every", "7m"),
])  # fmt: skip
@pytest.mark.parametrize("ends", ["Save", "Close"])
async def test_an_editor_that_closes_before_its_preview_logs_no_error(
    engine: Chromium, site: str, client: Client, there: str, button: str, field: str, text: str, ends: str
) -> None:
    await make_lively(client)
    async with watched(engine) as (_, page):
        await page.clock.install()
        await page.goto(f"{site}/dashboard/{there}")
        await page.get_by_role("button", name=button).first.click()
        typed = await page.get_by_label(field).element_handle()
        last = await page.locator("#dialog").get_by_role("button", name=ends).element_handle()
        await page.evaluate(
            """([typed, last, text]) => {
                typed.value = text;
                typed.dispatchEvent(new Event('input', {bubbles: true}));
                last.click();
            }""",
            [typed, last, text],
        )
        await expect(page.locator("#dialog")).to_be_hidden()
        await page.clock.run_for(500)
        await page.get_by_role("button", name=button).first.click()
        await page.get_by_label(field).press_sequentially("x")
        await expect(page.locator("#dialog .preview .problem")).to_be_visible()


async def test_the_editor_of_a_schedule_begins_at_what_it_fires_by(engine: Chromium, site: str, client: Client) -> None:
    await make_lively(client)
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/schedules")
        for name, field in (("heartbeat", "Or every"), ("invoices", "Cron")):
            await page.locator("tr.row", has_text=name).get_by_role("button", name="Edit").click()
            await expect(page.get_by_label(field)).to_be_focused()
            await page.keyboard.press("Escape")
            await expect(page.locator("#dialog")).to_be_hidden()


async def test_jobs_are_searched_selected_and_cancelled_by_keys(engine: Chromium, site: str, client: Client) -> None:
    await make_lively(client)
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        await page.keyboard.press("/")
        await page.keyboard.type("qu")
        await page.keyboard.press("Tab")
        await page.keyboard.type("news")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/jobs?q=queue%3Anewsletter*")
        await expect(page.locator("tr.row")).to_have_count(9)
        await page.locator("h1").click()
        for key in ("j", "x", "j", "x"):
            await page.keyboard.press(key)
        bar = page.locator("#selected-bar")
        await expect(bar).to_contain_text("2 selected")
        await expect(bar.get_by_role("button")).to_have_text(["Run now", "Cancel", "More", "Clear"])
        await bar.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Cancel 2 jobs").click()
        await expect(page.locator("#toasts")).to_contain_text("2 jobs cancelled")
        await expect(page.locator("tr.row", has_text="cancelled")).to_have_count(2)
        await page.locator("tr.row", has_text="cancelled").first.locator("input[data-select]").check()
        await expect(bar.get_by_role("button")).to_have_text(["Retry", "More", "Clear"])
        await bar.get_by_role("button", name="Clear").click()
        await page.locator("h1").click()
        await page.keyboard.press("?")
        await expect(page.locator("#help")).to_be_visible()


async def test_the_search_completes_errors_and_tags(engine: Chromium, site: str, client: Client) -> None:
    await make_lively(client)
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        await page.keyboard.press("/")
        await page.keyboard.type("error:Provider")
        await expect(page.locator("#hints")).to_contain_text("error:ProviderTimeout")
        await page.keyboard.press("Tab")
        await page.keyboard.type("tag:v")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/jobs?q=error%3AProviderTimeout+tag%3Avip*")
        await expect(page.locator("tr.row").first).to_contain_text("ProviderTimeout")


async def test_a_job_is_shown_rescheduled_cancelled_retried_and_deleted(engine: Chromium, site: str, client: Client) -> None:
    job = await client.enqueue("demo.echo", {"secret": "of the payload"}, delay="3h")
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs/{job.id}")
        await expect(page.get_by_text("of the payload")).to_have_count(0)
        await page.get_by_role("link", name="Show payload").click()
        await expect(page.get_by_text("of the payload")).to_be_visible()
        await page.get_by_role("button", name="Reschedule").click()
        await page.get_by_label("Due in").fill("5h")
        await page.locator("#dialog").get_by_role("button", name="Reschedule").click()
        await expect(page.locator("#dialog")).to_be_hidden()
        await page.get_by_role("button", name="Run now").click()
        await expect(page.locator("#dialog")).to_contain_text("It becomes due at once")
        await page.get_by_role("button", name="Leave it").click()
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".head .state")).to_have_text("Cancelled")
        await expect(page.get_by_text("of the payload")).to_be_visible()
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator(".head .state")).to_have_text("Ready")
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("button", name="Delete 1 job").click()
        await page.wait_for_url("**/dashboard/jobs")


async def test_a_job_is_added_by_hand(engine: Chromium, site: str, client: Client) -> None:
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        await page.get_by_role("button", name="Add a job").first.click()
        await page.get_by_label("Type").fill("demo.echo")
        await page.get_by_label("Delay").fill("2h")
        await page.get_by_label("Payload").fill('{"hello": "world"}')
        await page.get_by_role("button", name="Add the job").click()
        await page.wait_for_url(re.compile(r"/dashboard/jobs/[0-9a-f-]{36}$"))
    [job] = (await client.find()).jobs
    assert (job.payload, job.status) == ({"hello": "world"}, Status.QUEUED)


async def test_what_lives_changes_in_place(engine: Chromium, site: str, client: Client) -> None:
    jobs = [await client.enqueue("demo.echo", delay="1h") for _ in range(3)]
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        await page.evaluate(WATCH_SHIFTS)
        await client.cancel(jobs[0].id)
        await client.enqueue_many([("demo.echo", {})] * 12)
        await expect(page.locator("tr.row", has_text="cancelled")).to_have_count(1)
        await expect(page.get_by_text("12 new")).to_be_visible()
        await expect(page.locator("tr.row")).to_have_count(3)
        assert await page.evaluate("window.shift") < 0.02
        await page.get_by_role("switch", name="Live").click()
        await expect(page.get_by_role("switch")).to_have_text("Not live")


async def test_a_selection_freezes_the_list(engine: Chromium, site: str, client: Client) -> None:
    jobs = [await client.enqueue("demo.echo", delay="1h") for _ in range(3)]
    async with watched(engine) as (context, page):
        other = await context.new_page()
        for tab in (page, other):
            await tab.goto(f"{site}/dashboard/jobs")
        await page.bring_to_front()
        await page.locator("input[data-select]").first.check()
        await client.cancel(jobs[0].id)
        await client.enqueue("demo.echo", delay="1h")
        await expect(other.get_by_text("1 new")).to_be_visible()
        await expect(other.locator("tr.row", has_text="cancelled")).to_have_count(1)
        assert await page.get_by_text("1 new").count() == await page.locator("tr.row", has_text="cancelled").count() == 0
        await page.get_by_role("button", name="Clear").click()
        await expect(page.get_by_text("1 new")).to_be_visible(timeout=20_000)
        await expect(page.locator("tr.row", has_text="cancelled")).to_have_count(1)


async def test_the_log_and_the_progress_of_a_run_come_as_they_are_reported(
    engine: Chromium, site: str, client: Client
) -> None:
    await client.enqueue("report.build")
    run = await claim_one(client.store, lease=timedelta(hours=1))
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs/{run.lease.id}")
        await expect(page.locator(".head .state")).to_have_text("Running")
        report = Report(run.lease, timedelta(seconds=1), 0.62, "drawing", ((timedelta(seconds=1), "drew 3 of 5 charts"),))
        await client.store.renew([report], lease=timedelta(hours=1))
        await expect(page.get_by_text("62 % · drawing")).to_be_visible(timeout=20_000)
        await expect(page.locator(".log")).to_contain_text("drew 3 of 5 charts")


async def test_a_countdown_follows_the_clock_of_the_server(engine: Chromium, site: str, client: Client) -> None:
    job = await client.enqueue("demo.echo", delay="30m")
    async with watched(engine) as (context, page):
        await context.add_init_script("const now = Date.now; Date.now = () => now() + 7_200_000")
        await page.goto(f"{site}/dashboard/jobs/{job.id}")
        await expect(page.locator(".countdown")).to_have_text(re.compile(r"^(30:00|2\d:\d\d)$"))


async def test_nothing_moves_for_those_who_want_less_motion(engine: Chromium, site: str, client: Client) -> None:
    await client.enqueue("demo.echo", delay="1h")
    moving = "getComputedStyle(document.querySelector('.button')).transitionDuration"
    for motion, seconds in (("no-preference", "0.1s"), ("reduce", "0s")):
        async with watched(engine, reduced_motion=motion) as (_, page):
            await page.goto(f"{site}/dashboard/queues")
            assert await page.evaluate(moving) == seconds


async def test_pages_show_everything_without_a_script(engine: Chromium, site: str, client: Client) -> None:
    await make_lively(client)
    async with watched(engine, java_script_enabled=False) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        assert await page.locator("tr.row").count() > 40
        await expect(page.get_by_role("button", name=re.compile("Add a job|Live"))).to_have_count(0)
        await expect(page.get_by_role("checkbox")).to_have_count(0)
        await expect(page.get_by_text("you can look, but not act")).to_be_visible()
        await page.get_by_role("link", name="failed", exact=False).first.click()
        await page.locator("tr.row a.title").first.click()
        assert "ProviderTimeout" in await page.content() or "KeyError" in await page.content()


async def test_payloads_can_be_seen_without_a_script(engine: Chromium, site: str, client: Client) -> None:
    job = await client.enqueue("demo.echo", {"hello": "of the payload"}, delay="1h")
    async with watched(engine, java_script_enabled=False) as (_, page):
        await page.goto(f"{site}/dashboard/jobs/{job.id}")
        await page.get_by_role("link", name="Show payload").click()
        await expect(page.get_by_text("of the payload")).to_be_visible()


# Times in the zone of the browser

KOLKATA = {"timezone_id": "Asia/Kolkata"}  # half an hour beside the hours of UTC, so that a mistake shows
TIME = re.compile(r"\b\d\d:\d\d(?::\d\d)?\b")


async def test_every_time_is_told_in_the_zone_of_the_browser(engine: Chromium, site: str, client: Client) -> None:
    named = await make_lively(client)
    paths = ("", "/queues/newsletter", "/schedules", *(f"/jobs/{named[one]}" for one in ("held", "failed", "scheduled")))
    async with watched(engine, **KOLKATA) as (_, page):
        for path in paths:
            await page.goto(f"{site}/dashboard{path}")
            text = await page.locator("#live").inner_text()
            assert "UTC" not in re.sub(r"\d UTC$|every day, UTC|, UTC", "", text, flags=re.MULTILINE), path
            for one in await page.locator("#live [data-at]").all():
                at, written = await one.get_attribute("data-at"), await one.text_content()
                assert at is not None
                assert written is not None
                form = await one.get_attribute("data-form")
                if form == "date":
                    continue
                local = (datetime.fromisoformat(at) + timedelta(hours=5, minutes=30)).strftime("%H:%M")
                assert local in written, (path, at, written)


async def test_the_sentence_and_the_toast_tell_local_times(engine: Chromium, site: str, client: Client) -> None:
    job = await client.enqueue("demo.echo", delay="3h")
    due = (job.due_at + timedelta(hours=5, minutes=30)).strftime("%H:%M:%S")
    async with watched(engine, **KOLKATA) as (_, page):
        await page.goto(f"{site}/dashboard/jobs/{job.id}")
        await expect(page.locator(".why p").first).to_contain_text(due)
        await page.get_by_role("button", name="Reschedule").click()
        await page.get_by_label("or at").fill("2031-05-01T09:00")
        await page.locator("#dialog").get_by_role("button", name="Reschedule").click()
        await expect(page.locator("#toasts")).to_contain_text("Due at 1 May 2031, 09:00:00")
    assert (await client.get(job.id)).due_at == datetime(2031, 5, 1, 3, 30, tzinfo=UTC)


async def test_the_week_grid_has_local_days(engine: Chromium, site: str, client: Client) -> None:
    await client.add_schedule("nightly", "demo.echo", cron="0 3 * * *")
    async with watched(engine, timezone_id="Asia/Tokyo") as (_, page):
        await page.goto(f"{site}/dashboard/schedules")
        cells = page.locator("rect[data-hour]:not([display=none])")
        columns = {await one.get_attribute("x") for one in await cells.all()}
        assert columns == {"50%"}  # 03:00 UTC is noon in Tokyo
        assert 6 <= await cells.count() <= 7
        assert "12:00" in (await cells.first.locator("title").text_content() or "")


# The list that lives


async def test_the_cursor_of_the_keys_survives_a_refresh(engine: Chromium, site: str, client: Client) -> None:
    jobs = [await client.enqueue("demo.echo", delay="1h") for _ in range(3)]
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        for _ in range(2):
            await page.keyboard.press("j")
        await expect(page.locator(f"#job-{jobs[1].id}")).to_have_attribute("data-cursor", "")
        await client.cancel(jobs[0].id)
        await expect(page.locator("tr.row", has_text="cancelled")).to_have_count(1)
        await expect(page.locator(f"#job-{jobs[1].id}")).to_have_attribute("data-cursor", "")
        await page.keyboard.press("j")
        await expect(page.locator(f"#job-{jobs[0].id}")).to_have_attribute("data-cursor", "")


async def test_new_failures_wait_behind_a_line_under_their_chip(engine: Chromium, site: str, client: Client) -> None:
    await fail(client, 2)
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs?q=status:failed")
        await expect(page.locator("tr.row")).to_have_count(2)
        await fail(client, 5)
        await expect(page.get_by_text("5 new")).to_be_visible()
        await expect(page.locator("tr.row")).to_have_count(2)
        await expect(page.locator("#failed-count .n")).to_have_text("7")
        await page.get_by_text("5 new").click()
        await expect(page.locator("tr.row")).to_have_count(7)


async def fail(client: Client, count: int) -> None:
    for _ in range(count):
        await client.enqueue("demo.echo", max_retries=0)
        await settle(client.store, await claim_one(client.store), BROKEN)


# Actions on many jobs


async def test_all_that_match_are_retried_over_a_window_and_followed(
    app: Demora, engine: Chromium, site: str, client: Client
) -> None:
    await fail(client, 4)
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs?q=status:failed")
        await page.get_by_role("button", name="All that match").click()
        await page.get_by_role("button", name="Retry 4 jobs").click()
        await expect(page.locator("#dialog")).to_contain_text("No live worker can carry this out")
        await page.get_by_label("Spread over").fill("2h")
        await page.locator("#dialog").get_by_role("button", name="Retry 4 jobs").click()
        await page.wait_for_url("**/actions/*?of=4")
        await expect(page.locator("h1")).to_have_text("Retry 4 jobs")
        worker = Worker(app)
        working = asyncio.ensure_future(worker.run())
        try:
            await expect(page.locator(".progress .big")).to_have_text("Done: 4 jobs will run again", timeout=20_000)
        finally:
            worker.stop()
            await working
        assert (await client.count("status:waiting due:>20m")).jobs == 3


async def test_jobs_are_selected_on_a_phone_and_the_session_is_ended(engine: Chromium, site: str, client: Client) -> None:
    jobs = [await client.enqueue("demo.echo", delay="1h") for _ in range(3)]
    made = await client.keys.create("ops", [Scope.ADMIN])
    async with watched(engine, viewport=SIZES["phone"], has_touch=True) as (_, page):
        await page.goto(f"{site}/dashboard/sign-in?next=/dashboard/jobs")
        await page.get_by_label("API key").fill(made.text)
        await page.get_by_role("button", name="Sign in").click()
        await page.locator(f"#job-{jobs[0].id} input").tap()
        await page.locator("#selected-bar").get_by_role("button", name="More").tap()
        await page.get_by_role("button", name="Reprioritise 1 job").tap()
        await page.get_by_label("Priority").select_option("HIGH")
        await page.locator("#dialog").get_by_role("button", name="Reprioritise 1 job").tap()
        await expect(page.locator("#toasts")).to_contain_text("1 job reprioritised")
        await page.get_by_role("button", name="Sign out").tap()
        await page.wait_for_url("**/sign-in")
    assert (await client.get(jobs[0].id)).priority is Priority.HIGH


async def test_a_phone_shows_what_queues_hold_and_a_readable_life(engine: Chromium, site: str, client: Client) -> None:
    named = await make_lively(client)
    async with watched(engine, viewport=SIZES["phone"]) as (_, page):
        await page.goto(f"{site}/dashboard/queues")
        row = page.locator("#queue-newsletter")
        await expect(row.locator("[data-label=Held]")).to_be_visible()
        await expect(row.locator("[data-label=Pace]")).to_contain_text("3 every 2m")
        await page.goto(f"{site}/dashboard/jobs/{named['failed']}")
        await expect(page.locator(".life-list")).to_contain_text("Attempt 1 failed")
        await expect(page.locator(".timeline > .picture")).to_be_hidden()
        await page.goto(f"{site}/dashboard")
        worker = await page.locator("table.slots th").first.bounding_box()
        assert worker
        assert worker["width"] > 300


async def test_a_chart_of_nothing_is_one_line_on_a_phone(engine: Chromium, site: str, client: Client) -> None:
    await client.enqueue("demo.echo", delay="1h")
    async with watched(engine, viewport=SIZES["phone"]) as (_, page):
        await page.goto(f"{site}/dashboard")
        charts = page.locator("[data-chart]")
        await expect(charts).to_have_text([re.compile("No runs"), re.compile("No runs"), re.compile("Nothing seen waiting")])
        heights = await charts.evaluate_all("(all) => all.map((one) => one.clientHeight)")
        assert max(heights) <= 40


async def test_a_chart_has_room_for_the_names_of_its_lines(engine: Chromium, site: str, client: Client) -> None:
    await client.enqueue("demo.echo", queue="a-queue-with-name", delay="1h")
    await client.store.statistics.sample({"a-queue-with-name": Depth(3, 4)})
    async with watched(engine, viewport=SIZES["phone"]) as (_, page):
        await page.goto(f"{site}/dashboard/queues")
        await page.locator(".u-over").wait_for()
        assert await page.evaluate(ROOM) > 0


# The pixels that are left beside the name of a chart's line.
ROOM = """() => {
  const context = document.createElement("canvas").getContext("2d");
  context.font = "12px Inter, system-ui, sans-serif";
  const right = (query) => document.querySelector(query).getBoundingClientRect().right;
  return right("[data-chart]") - right(".u-over") - 8 - context.measureText("a-queue-with-name").width;
}"""
OPEN = "(path) => htmx.ajax('GET', path, {target: '#dialog', swap: 'innerHTML'})"
WATCH_SHIFTS = """() => {
  window.shift = 0;
  const add = (list) => { for (const one of list.getEntries()) window.shift += one.value; };
  new PerformanceObserver(add).observe({type: "layout-shift", buffered: true});
}"""

# Hostile texts


@pytest.mark.parametrize("width", [390, 1000, 1010, 1440])
async def test_the_longest_texts_fit_the_screen(engine: Chromium, site: str, client: Client, width: int) -> None:
    ids = (await make_hostile(client)).values()
    queues = ("/queues/default", f"/queues/{LONG}")
    async with watched(engine, viewport={"width": width, "height": 900}) as (_, page):
        for path in ("", "/jobs", "/queues", *queues, "/schedules", "/failures", "/system", *(f"/jobs/{id}" for id in ids)):
            await page.goto(f"{site}/dashboard{path}")
            await expect(page.locator("h1")).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await page.evaluate(BEYOND_PANEL) == [], path


# Words and buttons that stand beyond the edge of their panel, unless it scrolls or cuts them there.
BEYOND_PANEL = """[...document.querySelectorAll(".panel")].flatMap((panel) => {
  const edge = panel.getBoundingClientRect().right + 1;
  const cut = (one) => getComputedStyle(one).overflowX !== "visible" || (one !== panel && cut(one.parentElement));
  return [...panel.querySelectorAll("td, th, a, button, dd, p, code")]
    .filter((one) => one.getBoundingClientRect().right > edge && !cut(one.parentElement))
    .map((one) => one.outerHTML.slice(0, 200));
})"""


async def test_nothing_from_a_job_runs_or_hides(engine: Chromium, site: str, client: Client) -> None:
    ids = (await make_hostile(client)).values()
    async with watched(engine) as (_, page):
        for path in (
            "",
            "/jobs",
            "/queues",
            "/queues/default",
            "/failures",
            "/system",
            *(f"/jobs/{id}" for id in ids),
        ):
            await page.goto(f"{site}/dashboard{path}")
            if path.count("/") == 2 and "queues" not in path:
                await page.get_by_role("link", name="Show payload").click()
                await expect(page.locator("#payload pre")).to_be_visible()
            text = await page.content()
            assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\ufeff\x1b\x9b\x07]", text), path
            assert await page.evaluate("window.hacked") is None, path
        for query in HOSTILE:
            await page.goto(f"{site}/dashboard/jobs?{urlencode({'q': query})}")
            assert await page.evaluate("window.hacked") is None, query
