"""`demora schedules` and `demora schedule`."""

from tests.cli.conftest import Run, answer


def test_a_schedule_is_added_listed_shown_and_removed(run: Run) -> None:
    said = run("schedule", "add", "nightly", "demo.echo", '{"a":1}', "--cron", "0 3 * * *", "--timezone", "Europe/Madrid")
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, "schedule nightly is added")
    assert "it runs at 03:00 every day, Europe/Madrid; next " in said.stdout
    [listed] = answer(run("schedules", "--json"))["schedules"]
    assert (listed["name"], listed["origin"], listed["payload"]) == ("nightly", "cli", {"a": 1})
    assert listed["changedBy"].startswith("cli:")
    assert "at 03:00 every day" in run("schedules").stdout
    assert run("schedule", "remove", "nightly").stdout == "schedule nightly is removed; its jobs stay\n"
    assert run("schedules").stdout == "no schedules; demora schedule add adds one\n"


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


def test_a_backfill_shows_what_it_would_add(run: Run) -> None:
    run("schedule", "add", "daily", "demo.echo", "--cron", "@daily")
    words = ("schedule", "run", "daily", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-03T12:00:00Z")
    would = answer(run(*words, "--dry-run", "--json"))
    assert (len(would["added"]), would["dryRun"]) == (3, True)
    assert run(*words).stdout.splitlines()[-1] == "3 runs got a job"
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
