"""`demora schedules` and `demora schedule`."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Run, answer
from tests.zones import PLACE, own_zones

SHOP = """
from demora import Demora

app = Demora()


@app.job("report.build")
async def build() -> None: ...


@app.job("report.send")
async def send(to: str, copies: int, note: str = "") -> None: ...
"""


def test_a_schedule_is_added_listed_shown_and_removed(run: Run) -> None:
    said = run("schedule", "add", "nightly", "demo.echo", '{"a":1}', "--cron", "0 3 * * *", "--timezone", "Europe/Madrid")
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, "schedule nightly is added")
    assert "it runs every day at 03:00, Europe/Madrid; next " in said.stdout
    [listed] = answer(run("schedules", "--json"))["schedules"]
    assert (listed["name"], listed["origin"], listed["payload"]) == ("nightly", "cli", {"a": 1})
    assert listed["changedBy"].startswith("cli:")
    assert "every day at 03:00" in run("schedules").stdout
    assert run("schedule", "remove", "nightly").stdout == "schedule nightly is removed; its jobs stay\n"
    assert run("schedules").stdout == "no schedules; demora schedule add adds one\n"


@pytest.mark.parametrize("command", ["add", "edit"])
def test_a_zone_is_given_under_the_name_that_it_has_in_python_too(run: Run, command: str) -> None:
    words = ["nightly", "--cron", "0 4 * * *", "--tz", "Asia/Tokyo"]
    if command == "add":
        words.insert(1, "demo.echo")
    else:
        run("schedule", "add", "nightly", "demo.echo", "--every", "1h")
    assert "every day at 04:00, Asia/Tokyo" in run("schedule", command, *words).stdout


def test_show_lists_ten_runs_in_the_zone_and_in_utc_and_draws_the_week(run: Run) -> None:
    run("schedule", "add", "nightly", "demo.echo", "--cron", "0 3,9 * * *", "--timezone", "Asia/Tokyo")
    lines = run("schedule", "show", "nightly").stdout.splitlines()
    runs = lines[lines.index("next runs") + 1 :][:10]
    assert all(("03:00:00 JST" in line and "T18:00:00.000Z" in line) or ("T00:00:00.000Z" in line) for line in runs)
    [title] = [line for line in lines if line.startswith("next week")]
    assert title.endswith("in Asia/Tokyo")
    week = lines[lines.index(title) + 1 :][:7]
    assert [line[-24:] for line in week[1:]] == ["...1.....1.............."] * 6


def test_a_schedule_is_changed_paused_resumed_and_triggered(run: Run) -> None:
    run("schedule", "add", "often", "demo.echo", "--every", "90s")
    changed = answer(run("schedule", "edit", "often", "--every", "2m", "--overlap", "skip", "--tag", "a", "--json"))
    assert (changed["every"], changed["overlap"], changed["tags"]) == (120_000, "skip", ["a"])
    assert "is paused" in run("schedule", "pause", "often", "--reason", "holiday").stdout
    assert "holiday" in run("schedule", "show", "often").stdout
    assert answer(run("schedule", "resume", "often", "--json"))["enabled"] is True
    job = answer(run("schedule", "trigger", "often", "--json"))
    assert (job["scheduleName"], job["slotAt"]) == ("often", None)
    assert "schedule     often, triggered by hand" in run("job", job["id"]).stdout
    run("enqueue", "demo.echo")
    [found] = answer(run("jobs", "schedule:often", "--json"))["jobs"]
    assert found["id"] == job["id"]


def test_what_a_schedule_has_is_shown_and_cleared(run: Run) -> None:
    options = ("--end-at", "2090-01-01T00:00:00Z", "--start-at", "2030-01-01T00:00:00Z", "--tag", "a", "--tag", "b")
    hook = ("--timeout", "5m", "--webhook-url", "https://example.com/hook", "--missed", "all", "--missed-limit", "7")
    run("schedule", "add", "often", "demo.echo", "--every", "90s", "--max-retries", "4", *options, *hook)
    lines = run("schedule", "show", "often").stdout.splitlines()
    assert {
        "tags         a, b",
        "retries      4, the first after 1s",
        "timeout      5m",
        "webhook      https://example.com/hook",
        "missed       all, at most 7, up to 7d late",
    } <= set(lines)
    given = [word for name in ("end-at", "start-at", "timeout", "webhook-url", "tag") for word in ("--clear", name)]
    cleared = answer(run("schedule", "edit", "often", *given, "--json"))
    assert [cleared[name] for name in ("endAt", "startAt", "timeout", "webhookUrl", "tags")] == [None] * 4 + [[]]
    assert "tags" not in run("schedule", "show", "often").stdout
    both = run("schedule", "edit", "often", "--tag", "x", "--clear", "tag")
    assert (both.exit_code, "not both" in both.stderr) == (2, True)


def test_a_type_that_is_nearly_one_of_the_application_is_refused(run: Run, folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP)
    refused = run("--app", "shop:app", "schedule", "add", "nightly", "report.biuld", "--cron", "@daily")
    assert (refused.exit_code, "did you mean report.build" in refused.stderr) == (1, True)
    assert run("--app", "shop:app", "schedule", "add", "nightly", "report.build", "--cron", "@daily").exit_code == 0
    assert run("--app", "shop:app", "schedule", "edit", "nightly", "--type", "report.biuld").exit_code == 1


def test_a_refusal_shows_what_would_be_right(run: Run, folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP)
    payload = run("--app", "shop:app", "schedule", "add", "a", "report.send", '{"to": 7}', "--cron", "@daily")
    assert (payload.exit_code, 'write for instance {"to":"text","copies":1}' in payload.stderr) == (1, True)
    past = run("schedule", "add", "a", "demo.echo", "--cron", "@daily", "--end-at", "2020-01-01T00:00:00Z")
    assert (past.exit_code, "give a later time, for instance 20" in past.stderr) == (2, True)
    over = run("schedule", "add", "a", "demo.echo", "--at", "2020-01-01T00:00:00Z")
    assert (over.exit_code, "not past, for instance 20" in over.stderr) == (2, True)


def test_a_backfill_shows_what_it_would_add(run: Run) -> None:
    run("schedule", "add", "daily", "demo.echo", "--cron", "@daily")
    words = ("schedule", "run", "daily", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-03T12:00:00Z")
    would = answer(run(*words, "--dry-run", "--json"))
    assert (len(would["added"]), would["dryRun"]) == (3, True)
    assert run(*words).stdout.splitlines()[-1] == "3 runs got a job"
    listed = answer(run("jobs", "schedule:daily", "--json"))["jobs"]
    shown = {line for job in listed for line in run("job", job["id"]).stdout.splitlines() if line.startswith("schedule ")}
    assert shown == {f"schedule     daily, for 2026-01-0{day}T00:00:00.000Z" for day in (1, 2, 3)}
    assert run(*words).stdout == "0 runs got a job; 3 had one already\n"


def test_bad_input_is_refused_with_what_would_be_right(run: Run) -> None:
    never = run("schedule", "add", "a", "demo.echo", "--cron", "0 0 30 2 *")
    assert (never.exit_code, "--cron" in never.stderr) == (2, True)
    zone = run("schedule", "add", "a", "demo.echo", "--cron", "@daily", "--timezone", "Europe/Madird")
    assert (zone.exit_code, "Europe/Madrid" in zone.stderr) == (2, True)
    run("schedule", "add", "a", "demo.echo", "--cron", "@daily")
    taken = run("schedule", "add", "a", "demo.echo", "--cron", "@daily")
    assert (taken.exit_code, "'a' exists" in taken.stderr) == (1, True)
    assert run("schedule", "show", "b").exit_code == 1
    assert run("schedule", "edit", "a").exit_code == 2


def test_a_schedule_in_a_zone_that_this_machine_does_not_know_is_shown(run: Run, tmp_path: Path) -> None:
    with own_zones(tmp_path) as zones:
        zones.set(timedelta(hours=1))
        run("schedule", "add", "broken", "demo.echo", "--cron", "0 3 * * *", "--timezone", PLACE)
        run("schedule", "add", "often", "demo.echo", "--every", "1h", "--timezone", PLACE)
        zones.take_away()
        shown = run("schedule", "show", "broken")
        assert shown.exit_code == 0
        assert "unknown on this machine, which cannot fire it: timezone: 'Demo/Place' is not a zone" in shown.stdout
        assert answer(run("schedule", "show", "broken", "--json"))["nextRuns"] == []
        assert run("schedule", "show", "often").stdout.count(" UTC ") == 10
        assert PLACE in run("schedules").stdout
        assert "is paused" in run("schedule", "pause", "broken").stdout
        mended = run("schedule", "edit", "broken", "--timezone", "UTC")
        assert mended.exit_code == 0
