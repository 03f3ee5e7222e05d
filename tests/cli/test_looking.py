"""Commands that look: tables for people, the wire form for scripts, and no database made by looking."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from demora import Context, Demora
from demora.cli.output import about
from demora.core.job import Attempt
from tests.builders import NO_SUCH_ID
from tests.cli.conftest import Run, answer, work_off

HOSTILE = "\x1b[31m[bold]red[/bold]\r\nforged\u202e"
LOOKS = [("jobs",), ("job", NO_SUCH_ID), ("dead-letters",), ("queues",), ("workers",)]
TIDIES = [("purge", "--status", "FAILED", "--older-than", "7d", "--yes"), ("recover",), ("retry", "--all", "--yes")]
ACTS = [("cancel", NO_SUCH_ID), ("retry", NO_SUCH_ID), ("delete", NO_SUCH_ID), ("pause", "mail"), ("resume", "mail")]


@pytest.mark.parametrize(
    "words", [*LOOKS, *ACTS, *TIDIES, ("reschedule", NO_SUCH_ID, "--delay", "1s")], ids=lambda words: words[0]
)
def test_where_there_is_no_database_it_says_where_it_looked_and_what_to_do(
    run: Run, folder: Path, words: tuple[str, ...]
) -> None:
    refused = run(*words)
    assert refused.exit_code == 1
    advice = "start demora serve, which creates it, or choose another with --database-url or DEMORA_DATABASE_URL"
    assert refused.stderr == f"error: there is no database yet at sqlite:///{folder}/demora.db; {advice}\n"
    assert not list(folder.iterdir())


def test_a_file_that_is_no_database_is_left_alone(run: Run, folder: Path) -> None:
    (folder / "demora.db").write_text("dear diary, " * 20)
    refused = run("jobs")
    assert refused.exit_code == 1
    assert refused.stderr == "error: cannot use the database file demora.db: SQLite: file is not a database\n"


def test_an_empty_database_has_no_jobs(run: Run) -> None:
    run("migrate")
    assert run("jobs").stdout == "no jobs\n"
    assert run("dead-letters").stdout == "no dead letters\n"
    assert run("queues").stdout == "no queues yet\n"
    assert run("workers").stdout == "no live workers; demora worker starts one\n"


def test_jobs_lists_the_newest_first(run: Run, enqueued: Callable[..., str]) -> None:
    first, second = enqueued("demo.echo", "--delay", "5d"), enqueued("demo.sleep", "--queue", "slow", "--priority", "LOW")
    header, *rows = run("jobs").stdout.splitlines()
    assert header.split() == ["ID", "STATUS", "WHEN", "TYPE", "QUEUE", "PRIORITY", "ATTEMPTS"]
    assert rows[0].split() == [second, "QUEUED", "due", "now", "demo.sleep", "slow", "LOW", "0", "of", "4"]
    assert rows[1].split() == [first, "QUEUED", "due", "in", "5d", "demo.echo", "default", "NORMAL", "0", "of", "4"]


def test_jobs_filters_by_status_queue_type_and_tag(run: Run, enqueued: Callable[..., str]) -> None:
    def ids(*words: str) -> list[str]:
        return [job["id"] for job in answer(run("jobs", *words, "--json"))["jobs"]]

    plain, tagged = enqueued("demo.echo"), enqueued("demo.sleep", "--tag", "t", "--queue", "q")
    run("cancel", plain)
    assert ids("--status", "cancelled") == [plain]
    assert ids("--status", "CANCELLED", "--status", "QUEUED") == [tagged, plain]
    assert ids("--queue", "q") == ids("--type", "demo.sleep") == ids("--tag", "t") == [tagged]


def test_jobs_come_page_by_page(run: Run, enqueued: Callable[..., str]) -> None:
    first, second = enqueued(), enqueued()
    page = answer(run("jobs", "--limit", "1", "--json"))
    assert [job["id"] for job in page["jobs"]] == [second]
    assert f"--cursor {page['nextCursor']}" in run("jobs", "--limit", "1").stdout
    rest = answer(run("jobs", "--cursor", page["nextCursor"], "--json"))
    assert ([job["id"] for job in rest["jobs"]], rest["nextCursor"]) == ([first], None)


def test_a_page_over_the_limit_is_a_usage_error(run: Run) -> None:
    assert run("jobs", "--limit", "201").exit_code == 2


def test_job_shows_attempts_and_result(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.echo", '{"hi": 1}', "--tag", "t")
    work_off(id)
    said = run("job", id).stdout
    for words in ("status       COMPLETED", "tags         t", '"hi": 1', "result", "attempt 1", "worker"):
        assert words in said


def test_job_shows_the_error_and_its_traceback(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.fail", '{"message": "out of milk"}', "--max-retries", "0")
    work_off(id)
    said = run("job", id).stdout
    assert "error        RuntimeError: out of milk" in said
    assert "  Traceback" in said
    assert answer(run("job", id, "--json"))["attempts"][0]["error"] == "RuntimeError: out of milk"


def test_job_shows_progress_and_log(run: Run, enqueued: Callable[..., str]) -> None:
    app = Demora()

    @app.job("chatty")
    async def chatty(ctx: Context) -> None:
        ctx.progress(0.4, "nearly half")
        ctx.log("a line")

    async def work(id: str) -> None:
        async with app, app.worker():
            await app.wait(id, "20s")

    id = enqueued("chatty")
    asyncio.run(work(id))
    said = run("job", id).stdout
    assert "progress     40% nearly half" in said
    assert "Z  a line" in said


def test_jobs_counts_attempts_since_the_last_retry_by_hand(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.fail", "--max-retries", "0")
    for _ in range(2):
        work_off(id)
        assert run("jobs").stdout.rstrip().endswith("1 of 1")
        run("retry", id)
        assert run("jobs").stdout.rstrip().endswith("0 of 1")
    assert "attempt 2" in run("job", id).stdout


@pytest.mark.parametrize(
    ("span", "told"), [(-5, "less than 1ms"), (0, "less than 1ms"), (1, "1ms"), (120, "120ms"), (2000, "2s")]
)
def test_job_tells_short_runs_in_milliseconds(run: Run, span: int, told: str, enqueued: Callable[..., str]) -> None:
    [job] = work_off(enqueued())
    began = datetime(2030, 1, 1, tzinfo=UTC)
    attempt = Attempt(1, began, began + timedelta(milliseconds=span), "w")
    said = about(msgspec.structs.replace(job, attempts=(attempt,)), began)
    assert f"  started 2030-01-01T00:00:00.000Z, took {told}" in list(said)


@pytest.mark.parametrize("words", [("jobs",), ("dead-letters",)])
def test_lists_leave_out_the_log(run: Run, enqueued: Callable[..., str], words: tuple[str, ...]) -> None:
    id = enqueued("demo.fail", "--max-retries", "0")
    work_off(id)
    assert "log" not in answer(run(*words, "--json"))["jobs"][0]
    assert answer(run("job", id, "--json"))["log"] == []


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_job_that_is_not_there_exits_with_1(run: Run, words: tuple[str, ...]) -> None:
    run("migrate")
    refused = run("job", NO_SUCH_ID, *words)
    assert (refused.exit_code, refused.stderr) == (1, f"error: no job has the id {NO_SUCH_ID}\n")


def test_dead_letters_are_the_failed_jobs(run: Run, enqueued: Callable[..., str]) -> None:
    failed, good = enqueued("demo.fail", "--max-retries", "0"), enqueued()
    work_off(failed, good)
    assert [job["id"] for job in answer(run("dead-letters", "--json"))["jobs"]] == [failed]
    assert "RuntimeError: this job always fails" in run("dead-letters").stdout


def test_queues_are_counted(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued("demo.echo", "--queue", "mail")
    enqueued("demo.echo", "--queue", "mail", "--delay", "1h")
    run("pause", "mail", "--reason", "the server is down")
    [queue] = answer(run("queues", "--json"))["queues"]
    assert {"name": "mail", "ready": 1, "delayed": 1, "processing": 0, "dead": 0, "paused": True}.items() <= queue.items()
    assert queue["pauseReason"] == "the server is down"
    assert run("queues").stdout.splitlines()[1].split(maxsplit=5) == ["mail", "1", "1", "0", "0", "the server is down"]


def test_what_others_set_cannot_move_the_cursor_or_forge_a_line(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.fail", f'{{"message": "\\u001b[31m{"x" * 5}\\r\\u202e"}}', "--name", HOSTILE, "--tag", HOSTILE)
    run("reschedule", id, "--delay", "1s")
    run("pause", "default", "--reason", HOSTILE)
    for words in (("jobs",), ("job", id), ("queues",)):
        said = run(*words).stdout
        assert all(character.isprintable() or character == "\n" for character in said)
    assert "[bold]red[/bold]" in run("queues").stdout
    assert "\n" + "forged" not in run("job", id).stdout


def test_jobs_takes_a_search_an_order_and_counts(run: Run, enqueued: Callable[..., str]) -> None:
    def ids(*words: str) -> list[str]:
        return [job["id"] for job in answer(run("jobs", *words, "--json"))["jobs"]]

    later = enqueued("email.send", "--delay", "5m", "--tag", "vip")
    soon, other = enqueued("email.check", "--delay", "1m"), enqueued("sms.send", "--delay", "1s")
    assert ids("type:email.*", "status:queued") == [soon, later]
    assert ids("type:email.*", "status:queued", "--sort", "created") == [soon, later]
    assert ids("type:email.*", "created:<1h") == [soon, later]
    assert ids("tag:vip", "due:>2m") == [later]
    assert ids("--sort", "due") == [other, soon, later]
    counted = run("jobs", "type:email.*", "--limit", "1", "--count").stdout.splitlines()
    assert counted[-2:] == ["2 jobs match", f"for the next page, add --cursor {soon}"]
    assert answer(run("jobs", "type:email.*", "--count", "--json"))["count"] == 2


def test_a_search_that_cannot_be_read_is_refused_with_the_reason(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued("demo.echo")
    refused = run("jobs", "state:failed")
    assert refused.exit_code == 2
    assert "did you mean status" in refused.stderr


def test_a_search_that_ended_early_says_how_to_go_on(
    run: Run, enqueued: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demora.engines.sqlite.jobs.finding.MOST_READ", 1)
    first, second = enqueued("demo.echo", "--name", "wanted"), enqueued("demo.echo")
    early = run("jobs", "wanted").stdout.splitlines()
    assert early[-1] == f"the search stopped early, because many jobs do not match; to continue, add --cursor {second}"
    assert [job["id"] for job in answer(run("jobs", "wanted", "--cursor", second, "--json"))["jobs"]] == [first]
