"""Acting on many jobs: only those that the options name, and only with consent."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run, answer, work_off

Enqueued = Callable[..., str]
DEAD = ("demo.fail", "--max-retries", "0")


@pytest.fixture
def dead(enqueued: Enqueued) -> Callable[..., str]:
    """Make a dead letter; answers with its id."""

    def make(*words: str) -> str:
        id = enqueued(*DEAD, *words)
        work_off(id)
        return id

    return make


def statuses(run: Run, *ids: str) -> list[str]:
    known = {job["id"]: job["status"] for job in answer(run("jobs", "--json"))["jobs"]}
    return [known.get(id, "gone") for id in ids]


@pytest.mark.parametrize("words", [("--queue", "mail"), ("--tag", "red"), ("--queue", "mail", "--tag", "red")])
def test_retry_by_filter_leaves_other_dead_letters(run: Run, dead: Enqueued, words: tuple[str, ...]) -> None:
    hit, miss = dead("--queue", "mail", "--tag", "red"), dead()
    assert run("retry", *words, "--yes").stdout == "retried 1 job\n"
    assert statuses(run, hit, miss) == ["QUEUED", "FAILED"]


def test_delete_by_type_leaves_other_dead_letters(run: Run, dead: Enqueued) -> None:
    id = dead()
    assert run("delete", "--type", "demo.echo", "--yes").stdout == "deleted 0 jobs\n"
    assert run("delete", "--type", "demo.fail", "--yes").stdout == "deleted 1 job\n"
    assert statuses(run, id) == ["gone"]


def test_retry_takes_cancelled_jobs_if_asked_for(run: Run, enqueued: Enqueued) -> None:
    id = enqueued()
    run("cancel", id)
    assert run("retry", "--all", "--yes").stdout == "retried 0 jobs\n"
    assert run("retry", "--status", "CANCELLED", "--yes").stdout == "retried 1 job\n"
    assert statuses(run, id) == ["QUEUED"]


def test_a_status_that_the_verb_does_not_take_is_refused(run: Run, dead: Enqueued) -> None:
    dead()
    refused = run("retry", "--status", "COMPLETED", "--yes")
    assert refused.exit_code == 2
    assert "Invalid value for '--status': retry takes jobs that are FAILED or CANCELLED" in refused.stderr


def test_cancel_by_filter_takes_waiting_jobs_only(run: Run, enqueued: Enqueued, dead: Enqueued) -> None:
    failed, waiting, other = dead(), enqueued("demo.echo", "--queue", "mail"), enqueued()
    assert run("cancel", "--queue", "mail", "--yes").stdout == "cancelled 1 job\n"
    assert statuses(run, failed, waiting, other) == ["FAILED", "CANCELLED", "QUEUED"]


@pytest.mark.parametrize("verb", ["retry", "delete"])
def test_a_dry_run_says_how_many_and_does_nothing(run: Run, dead: Enqueued, verb: str) -> None:
    id = dead()
    assert run(verb, "--all", "--dry-run").stdout == f"would {verb} 1 job\n"
    assert answer(run(verb, "--all", "--dry-run", "--json")) == {
        "matched": 1,
        "done": 0,
        "skipped": 0,
        "more": False,
        "dryRun": True,
    }
    assert statuses(run, id) == ["FAILED"]


def test_a_limit_says_that_there_are_more(run: Run, dead: Enqueued) -> None:
    old, new = dead(), dead()
    assert run("retry", "--all", "--limit", "1", "--yes").stdout == "retried 1 job; stopped at the limit, more jobs match\n"
    assert statuses(run, old, new) == ["FAILED", "QUEUED"]


def test_older_than_spares_the_young(run: Run, dead: Enqueued) -> None:
    id = dead()
    assert run("delete", "--older-than", "1h", "--yes").stdout == "deleted 0 jobs\n"
    assert run("delete", "--older-than", "0s", "--yes").stdout == "deleted 1 job\n"
    assert statuses(run, id) == ["gone"]


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete"])
def test_ids_and_filters_exclude_each_other(run: Run, dead: Enqueued, verb: str) -> None:
    assert run(verb, dead(), "--all", "--yes").exit_code == 2
    assert run(verb, "--limit", "5", "--yes").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [("retry", "--all"), ("delete", "--all"), ("cancel", "--all"), ("purge", "--status", "FAILED", "--older-than", "0s")],
)
def test_where_nobody_can_be_asked_consent_must_be_given(run: Run, dead: Enqueued, words: tuple[str, ...]) -> None:
    id = dead()
    refused = run(*words)
    assert refused.exit_code == 2
    assert "add --yes" in refused.stderr
    assert statuses(run, id) == ["FAILED"]


def on_a_terminal(folder: Path, *words: str, typed: str) -> tuple[int, str]:
    """Run a command on a terminal and type; answers with its exit code and all that is seen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "demora", *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, close_fds=True
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # the terminal is gone once the command has ended
        pass
    os.close(ours)
    return process.wait(20), seen.decode()


@pytest.mark.slow
def test_on_a_terminal_it_asks_first_and_takes_no_for_an_answer(run: Run, folder: Path, dead: Enqueued) -> None:
    id = dead()
    code, seen = on_a_terminal(folder, "delete", "--all", typed="n\n")
    assert code == 1
    assert "delete 1 job? [y/N]" in seen
    assert statuses(run, id) == ["FAILED"]
    code, seen = on_a_terminal(folder, "delete", "--all", typed="y\n")
    assert code == 0
    assert "deleted 1 job" in seen
    assert statuses(run, id) == ["gone"]


def test_several_ids_are_answered_one_by_one_as_json(run: Run, dead: Enqueued, enqueued: Enqueued) -> None:
    failed, waiting = dead(), enqueued()
    result = run("retry", failed, waiting, "--json")
    assert result.exit_code == 1
    assert f"cannot retry job {waiting}: it is QUEUED" in result.stderr
    [one, other] = answer(run("cancel", failed, waiting, "--json"))["jobs"]
    assert (one, other) == (
        {"id": failed, "done": True, "status": "CANCELLED", "error": None},
        {"id": waiting, "done": True, "status": "CANCELLED", "error": None},
    )
