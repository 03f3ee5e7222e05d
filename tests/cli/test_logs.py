"""The log of what stays: lines for people, JSON for machines, and nothing in either that others could use."""

import asyncio
import inspect
import io
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from demora.cli.running import Lines, Objects, to_stderr
from demora.core.states import Status
from demora.settings import Settings
from demora.system import error_texts, notices
from demora.system.log_limit import Burst, Limit
from tests.cli.conftest import Run, Start, read_until

HOSTILE = "\x1b[31m\r\nforged \x7f \u202e \x85"


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Callable[[], str]]]:
    """Log as these settings say, beside what tests themselves listen with; answers with a function that gives what was
    written."""
    root, factory = logging.getLogger(), logging.getLogRecordFactory()
    level, ours = root.level, []

    def begin(stream: io.StringIO | None = None, **settings: Any) -> Callable[[], str]:
        stream = stream or io.StringIO()
        monkeypatch.setattr(notices, "_unknown", Limit(lasting=True))
        monkeypatch.setattr(sys, "stderr", stream)
        others = [handler for handler in root.handlers if handler not in ours]
        root.handlers.clear()
        to_stderr(Settings(**settings))
        ours.extend(root.handlers)
        root.handlers.extend(others)
        return stream.getvalue

    yield begin
    error_texts.configure("text")
    notices.show_ends(False)
    for handler in ours:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.setLogRecordFactory(factory)


def test_a_line_of_json_has_time_level_event_message_and_the_facts(written: Callable[..., Callable[[], str]]) -> None:
    said = written(log_format="json")
    notices.run_failed("01a", "email.send", "mail", Status.RETRYING, 2, "ValueError: no")
    line = json.loads(said())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "event": "job.failed",
        "message": "job 01a (email.send) attempt 2 failed, now RETRYING: ValueError: no",
        "logger": "demora",
        "jobId": "01a",
        "type": "email.send",
        "queue": "mail",
        "status": "RETRYING",
        "attempt": 2,
        "error": "ValueError: no",
    }


NOTICES: list[Callable[[], None]] = [
    lambda: notices.other_database("sqlite:///mine.db", "sqlite:///theirs.db", "DEMORA_DATABASE_URL"),
    lambda: notices.builtins_only(),
    lambda: notices.reloads("shop.py"),
    lambda: notices.reload_waits(1),
    lambda: notices.unknown_variable("DEMORA_X", None),
    lambda: notices.database_used("sqlite:///demora.db", "redis://host"),
    lambda: notices.worker_started("w", 1, "all", 3),
    lambda: notices.builtins_off(["demo.echo"], "why"),
    lambda: notices.queue_new("q"),
    lambda: notices.stop_requested("SIGINT"),
    lambda: notices.worker_stopping("w", 1, 8.0),
    lambda: notices.worker_stopped("w", 1),
    lambda: notices.worker_stuck("w", 1, 2),
    lambda: notices.worker_refused("w", OSError(HOSTILE)),
    lambda: notices.report_refused(OSError(HOSTILE)),
    lambda: notices.worker_store_closed("w"),
    lambda: notices.run_started("i", HOSTILE, "q", 1),
    lambda: notices.run_completed("i", HOSTILE, "q", 1, timedelta(seconds=0.5), Burst(lambda _: None)),
    lambda: notices.runs_completed(100),
    lambda: notices.run_put_back("i", HOSTILE, "q", Status.QUEUED, "why"),
    lambda: notices.run_cancelled("i", HOSTILE, "q", 1, HOSTILE),
    lambda: notices.run_failed("i", HOSTILE, "q", Status.FAILED, 1, HOSTILE),
    lambda: notices.job_lapsed("i", HOSTILE, None, Status.RETRYING),
    lambda: notices.type_unknown("t"),
    lambda: notices.unknown_failed(1),
    lambda: notices.job_unknown("i", "t"),
    lambda: notices.loop_blocked(("i", HOSTILE), 1.5, inspect.currentframe()),
    lambda: notices.loop_free(2.5),
    lambda: notices.lease_lost("i", "t"),
    lambda: notices.settled_too_late("i"),
    lambda: notices.run_timed_out("i", "t", 1.5),
    lambda: notices.process_forked(("i", HOSTILE)),
    lambda: notices.runs_left("w", ["t", HOSTILE, "t"]),
    lambda: notices.run_ignores_end("i", "t"),
    lambda: notices.store_trouble("claiming", OSError(HOSTILE), 0.1),
    lambda: notices.store_well("claiming"),
    lambda: notices.store_locked(HOSTILE, 5.0),
    lambda: notices.store_damaged(OSError(HOSTILE)),
    lambda: notices.scheduler_started("s"),
    lambda: notices.housekeeping_done(1, 2),
    lambda: notices.jobs_released("q", 1),
    lambda: notices.metrics_shown("http://127.0.0.1:9"),
    lambda: notices.schedule_fired(HOSTILE, 1, 2),
    lambda: notices.schedule_broken(HOSTILE, OSError(HOSTILE)),
    lambda: notices.schedule_over(HOSTILE),
    lambda: notices.schedules_foreseen(3, "2026a"),
    lambda: notices.schedule_defined(HOSTILE, "updated", ("cron",)),
    lambda: notices.worker_died(1, -9, 1.0),
    lambda: notices.supervisor_gone(),
    lambda: notices.keeper_died(OSError(HOSTILE)),
    lambda: notices.webhook_secret_made(),
    lambda: notices.line_away(OSError(HOSTILE)),
    lambda: notices.line_back(2),
    lambda: notices.line_filled(2, 100),
    lambda: notices.settlement_dropped("i", OSError(HOSTILE)),
    lambda: notices.hook_failed("startup", OSError(HOSTILE)),
    lambda: notices.service_started("http://127.0.0.1:1", "sqlite"),
    lambda: notices.service_reachable("0.0.0.0", "jobs.example.com"),
    lambda: notices.connections_full(HOSTILE),
    lambda: notices.connections_lowered(100, 50, 64),
    lambda: notices.use_not_noted("abc", OSError(HOSTILE)),
    lambda: notices.overloaded(2, 1),
    lambda: notices.request_failed("GET", HOSTILE, OSError(HOSTILE), HOSTILE),
    lambda: notices.pace_in_force("*", "3 in 2m", HOSTILE),
    lambda: notices.pace_set("q", None, HOSTILE),
    lambda: notices.jobs_held("q", held=2, delayed=3, waiting=1, next_in=4.5, last=None),
    lambda: notices.next_release("q", 4.5),
    lambda: notices.schema_step(2),
    lambda: notices.schema_block(2, "jobs_of_type", 1, 3),
    lambda: notices.schema_progress("jobs_of_type", "building index", 0.5),
    lambda: notices.acted(HOSTILE, "retry", HOSTILE),
]


@pytest.mark.parametrize("format", ["json", "text"])
def test_every_notice_is_one_line_without_control_characters(
    written: Callable[..., Callable[[], str]], format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_said", {})
    monkeypatch.setattr(notices, "_blocking", Limit())
    said = written(log_format=format, log_level="DEBUG")
    for notice in NOTICES:
        notice()
    lines = said().splitlines()
    assert len(lines) == len(NOTICES)
    assert all(line.isprintable() for line in lines)
    if format == "json":
        events = [json.loads(line)["event"] for line in lines]
        assert len(set(events)) == len(NOTICES)


def test_every_notice_there_is_was_tried() -> None:
    public = [name for name in vars(notices) if not name.startswith("_") and inspect.isfunction(getattr(notices, name))]
    ours = [name for name in public if getattr(notices, name).__module__ == notices.__name__]
    assert len(ours) == len(NOTICES) + 1  # `show_ends` says nothing


def test_trouble_that_lasts_is_told_now_and_then_and_its_end_once(
    written: Callable[..., Callable[[], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_troubled", {})
    said = written(log_format="json")
    for again in (3600.0, 3600.0, 0.0, 3600.0):  # at the third its time has come
        monkeypatch.setattr(notices, "AGAIN", again)
        notices.store_trouble("claiming", OSError("away"), 1.0)
        notices.store_trouble("settling", OSError(), 1.0)
    notices.store_trouble("claiming", OSError("another"), 1.0)
    for _ in range(2):
        notices.store_well("claiming")
        notices.store_well("renewing leases")
    lines = [(line["what"], line.get("error")) for line in map(json.loads, said().splitlines())]
    both = [("claiming", "away"), ("settling", "")]
    assert lines == [*both, *both, ("claiming", "another"), ("claiming", None)]


def test_what_an_application_logs_is_escaped_too(written: Callable[..., Callable[[], str]]) -> None:
    said = written(log_format="json")
    try:
        raise OSError(HOSTILE)
    except OSError:
        logging.getLogger("shop").exception(HOSTILE)
    assert said().rstrip("\n").isprintable()
    line = json.loads(said())
    assert (line["event"], line["logger"], line["message"]) == ("log", "shop", HOSTILE)
    assert "OSError" in line["traceback"]


@pytest.mark.parametrize(("level", "count"), [("DEBUG", 3), ("INFO", 2), ("WARNING", 1), ("ERROR", 0)])
def test_only_the_level_and_those_above_are_written(
    written: Callable[..., Callable[[], str]], level: str, count: int
) -> None:
    said = written(log_level=level)
    shop = logging.getLogger("shop")
    shop.debug("a")
    shop.info("b")
    shop.warning("c")
    assert len(said().splitlines()) == count


@pytest.mark.parametrize(
    ("stream", "no_colour", "seen"),
    [(Terminal, "", "\x1b[33mWARNING\x1b[0m"), (Terminal, "1", " WARNING "), (io.StringIO, "", " WARNING ")],
)
def test_colour_is_for_terminals_whose_owner_wants_it(
    written: Callable[..., Callable[[], str]],
    monkeypatch: pytest.MonkeyPatch,
    stream: type[io.StringIO],
    no_colour: str,
    seen: str,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    said = written(stream())
    notices.job_unknown("i", "t")
    assert seen in said()


def test_the_id_of_a_job_is_once_in_a_line() -> None:
    def line(message: str) -> str:
        return Lines().format(logging.makeLogRecord({"levelname": "INFO", "msg": message, "job_id": "01a"}))

    assert line("job 01a (email.send) completed").endswith(" INFO    job 01a (email.send) completed")
    assert line("sent").endswith(" INFO    [01a] sent")


@pytest.mark.parametrize(("stream", "shown"), [(Terminal, 1), (io.StringIO, 0)])
def test_only_a_terminal_shows_completed_jobs(
    written: Callable[..., Callable[[], str]], stream: type[io.StringIO], shown: int
) -> None:
    said = written(stream())

    async def complete() -> None:
        notices.run_completed("01a", "email.send", "mail", 1, timedelta(seconds=0.5), Burst(lambda _: None))

    asyncio.run(complete())
    assert said().count("job 01a (email.send) completed in 0.500 s") == shown


def test_a_traceback_is_bounded_and_one_that_cannot_be_read_is_left_out() -> None:
    class Unnamed(type):
        @property
        def __module__(cls) -> str:  # type: ignore[override]
            raise SystemExit(3)

    class Hostile(Exception, metaclass=Unnamed):
        pass

    long = ValueError("x" * 100_000)
    assert len(error_texts.of_traceback((ValueError, long, None))) == error_texts.MOST_TRACEBACK
    assert error_texts.of_traceback((Hostile, Hostile(), None)) == error_texts.UNREADABLE


def test_levels_are_aligned() -> None:
    lines = [Lines().format(logging.makeLogRecord({"levelname": name, "msg": "x"})) for name in ("INFO", "WARNING")]
    assert len({line.index(" x") for line in lines}) == 1
    assert json.loads(Objects().format(logging.makeLogRecord({"levelname": "INFO", "msg": "x"})))["level"] == "info"


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--log-format", "json"), ()], ids=["option", "variable"])
def test_a_worker_writes_json_if_told_to(start: Start, run: Run, words: tuple[str, ...]) -> None:
    run("enqueue", "demo.fail", '{"message": "canary-error"}', "--max-retries", "0", "--tag", "canary-tag")
    worker = start("worker", *words, **({} if words else {"DEMORA_LOG_FORMAT": "json"}))
    said = read_until(worker, "job.failed")
    worker.send_signal(signal.SIGTERM)
    said += worker.communicate(timeout=30)[1]
    lines = [json.loads(line) for line in said.splitlines()]
    events = ["database.used", "worker.builtins_only", "worker.started", "job.failed"]
    events += ["process.stopping", "worker.stopping", "worker.stopped"]
    assert [line["event"] for line in lines] == events
    assert len({line["worker"] for line in lines if "worker" in line}) == 1
    assert "canary-tag" not in said


@pytest.mark.slow
def test_a_worker_that_is_to_log_errors_only_starts_in_silence(start: Start, run: Run) -> None:
    run("enqueue", "demo.fail", "--max-retries", "1", "--retry-delay", "1h")
    worker = start("worker", "--log-level", "error")
    run("enqueue", "demo.echo", "--wait")
    worker.send_signal(signal.SIGTERM)
    assert worker.communicate(timeout=30) == ("", "")


@pytest.mark.parametrize(
    ("variable", "reason"),
    [("DEMORA_LOG_FORMAT", "must be text or json"), ("DEMORA_LOG_LEVEL", "must be one of DEBUG")],
)
def test_a_format_or_level_that_there_is_not_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, reason: str
) -> None:
    monkeypatch.setenv(variable, "loud")
    refused = run("worker")
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"error: {variable}: {reason}")
