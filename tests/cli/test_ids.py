"""Ids as people type them: a part is enough if it belongs to one job, and what a table shows can be typed."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from demora import Demora, Job
from demora.cli import options, output
from demora.cli.root import Failure
from demora.core.workers import WorkerRecord
from tests.cli.conftest import Run, answer, work_off

Enqueued = Callable[..., str]
FIRST, SECOND = "01a1e11f-3975-75e4-b088-96a6d1afcc4a", "01a1e11f-3975-7abc-b088-96a6d1af0000"


@pytest.fixture
def two() -> tuple[str, str]:
    """Two jobs whose ids begin alike."""
    ids = iter([FIRST, SECOND])

    async def add() -> None:
        async with Demora(new_id=lambda: next(ids)) as app:
            await app.enqueue("demo.echo")
            await app.enqueue("demo.sleep", priority="HIGH")

    asyncio.run(add())
    return FIRST, SECOND


@pytest.mark.parametrize("words", ["job {}", "why {}", "reschedule {} --delay 1h", "cancel {}", "webhooks show {}"])
@pytest.mark.parametrize("part", [FIRST[:16], FIRST[:-1], FIRST[:16].upper(), FIRST[:16].replace("-", ""), FIRST[-6:]])
def test_every_command_takes_a_part_of_an_id_that_belongs_to_one_job(
    run: Run, two: tuple[str, str], words: str, part: str
) -> None:
    done = run(*words.format(part).split(), "--json")
    assert done.exit_code == 0, done.stderr
    assert SECOND not in done.stdout


def test_an_ended_job_is_retried_and_deleted_by_a_part_of_its_id(run: Run, enqueued: Enqueued) -> None:
    id = enqueued("demo.fail", "--max-retries", "0")
    work_off(id)
    assert run("retry", id[:20]).stdout == f"{id} is QUEUED again\n"
    run("cancel", id[:20])
    assert run("delete", id[-8:]).stdout == f"{id} is deleted\n"


@pytest.mark.parametrize("part", [FIRST[:14], FIRST[:4]])
def test_a_part_that_belongs_to_several_jobs_is_refused_with_their_ids(run: Run, two: tuple[str, str], part: str) -> None:
    for words in (("job", part), ("cancel", part)):
        refused = run(*words)
        assert refused.exit_code == 1
        assert refused.stderr == (
            f"error: {part} matches several jobs, for example {SECOND} (demo.sleep), {FIRST} (demo.echo); "
            "type more of the id\n"
        )


@pytest.mark.parametrize("part", ["ffff", FIRST[:3], "01a1e1200", "zzzz", ""])
def test_a_part_of_no_id_is_refused(run: Run, two: tuple[str, str], part: str) -> None:
    refused = run("cancel", part)
    assert (refused.exit_code, refused.stderr) == (1, f"error: no job has the id {part}\n")


def listed() -> list[Job]:
    async def look() -> list[Job]:
        async with Demora() as app:
            return list((await app.find()).jobs)

    return asyncio.run(look())


def test_jobs_fit_a_terminal_of_80_columns_and_their_ids_can_be_typed(
    run: Run, enqueued: Enqueued, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(12):
        type = "demo.echo" if n % 2 else "a.type.with.a.long.name/that-goes-on"
        enqueued(type, "--delay", f"{n}h59m", "--queue", f"mail{n}")
    output.jobs(listed(), datetime.now(UTC), width=80)
    header, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 12
    assert max(map(len, [header, *rows])) <= 80
    assert header.split() == ["ID", "STATUS", "WHEN", "TYPE", "QUEUE"]
    for row in rows:
        assert run("job", row.split()[0]).exit_code == 0


def test_ids_are_shown_as_long_as_it_takes_to_tell_them_apart() -> None:
    assert output.short_ids([FIRST, SECOND]) == [FIRST[:18], SECOND[:18]]
    near = FIRST[:-1] + "b"
    assert output.short_ids([FIRST, near]) == [FIRST, near]


def test_jobs_in_a_pipe_have_whole_ids(run: Run, two: tuple[str, str]) -> None:
    assert [row.split()[0] for row in run("jobs").stdout.splitlines()[1:]] == [SECOND, FIRST]


def test_a_job_is_one_line_in_a_debugger(two: tuple[str, str]) -> None:
    assert repr(listed()[0]) == f"<Job {SECOND} demo.sleep QUEUED>"


def test_no_summary_of_a_command_is_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ((), ("keys",), ("webhooks",), ("webhooks", "secret")):
        commands = run(*words, "--help").stdout.partition("\nCommands:\n")[2]
        assert commands
        assert "..." not in commands


def test_ids_of_keys_and_secrets_may_be_shortened_to_their_beginning(run: Run) -> None:
    key = answer(run("keys", "create", "ci", "--scope", "read", "--json"))["id"]
    for words in (("keys", "limit", key[:6], "--rate", "1"), ("keys", "rotate", key[:6]), ("keys", "revoke", key[:6])):
        assert run(*words).exit_code == 0
    assert run("keys", "forget", key[:6]).stdout.startswith(f"{key} is forgotten")
    secret = answer(run("webhooks", "secret", "create", "--json"))["id"]
    assert run("webhooks", "secret", "forget", secret[:5]).stdout == f"secret {secret} is forgotten\n"


def test_a_worker_is_recovered_by_the_beginning_of_its_id(run: Run) -> None:
    async def beat(*ids: str) -> None:
        async with Demora() as app:
            for id in ids:
                await (await app.open()).store.heartbeat(WorkerRecord(id, "host", 1, 20))

    asyncio.run(beat("myhost-123-abcdef", "myhost-124-abcdef"))
    assert "myhost-123-abcdef holds no job" in run("recover", "--worker", "myhost-123", "--yes").stdout


def test_a_beginning_of_several_keys_is_refused() -> None:
    assert options._only("abcde", ["abcdef", "abcdefg"][:1]) == "abcdef"
    assert options._only("abcdef", ["abcdef", "abcdefg"]) == "abcdef"
    with pytest.raises(Failure, match="several ids begin like this, for example abcdef, abcdefg; type more of the id"):
        options._only("abcde", ["abcdef", "abcdefg"])
