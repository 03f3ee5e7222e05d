"""The process of a slot, as its worker hears it: each message that it sends, and how it ends."""

import os
import signal
from pathlib import Path

import pytest

from demora import Demora
from demora.core.verdict import Cancelled, Raised, Snoozed, Succeeded
from demora.worker.processes.location import ImportPath
from demora.worker.processes.messages import MOST_TEXT, Began, End, Logged, RunEnded, Said
from demora.worker.run import CANCELLED_WITHIN
from tests.builders import ms
from tests.facts import eventually
from tests.worker.talking import HERE, PATIENCE, talk
from tests.worker.test_processes import is_gone, written

pytestmark = pytest.mark.slow

GIGABYTE = 1024**3


def test_it_says_when_it_begins_and_what_the_run_came_to_and_takes_the_next_job() -> None:
    with talk() as process:
        process.greet()
        for type in ("pid", "pid.async"):
            job = process.give(type)
            assert process.hear() == Began(job.lease)
            ended = process.hear()
            assert isinstance(ended, RunEnded)
            assert ended.report.lease == job.lease
            assert isinstance(ended.outcome, Succeeded)
            assert str(process.pid).encode() in ended.outcome.result


def test_it_reports_while_the_handler_runs_and_says_the_rest_at_the_end(tmp_path: Path) -> None:
    with talk() as process:
        process.greet()
        process.give("tells", {"file": str(tmp_path / "go")})
        said = process.hear_next(Said).report
        while not said.log:
            said = process.hear_next(Said).report
        assert (said.progress, said.message, [line for _, line in said.log]) == (0.5, "half", ["first line"])
        (tmp_path / "go").touch()
        ended = process.hear_next(RunEnded)
    assert [line for _, line in ended.report.log] == ["last line"]
    assert ended.outcome == Succeeded(b'"told"')


def test_what_a_handler_raises_is_sent_as_what_it_means() -> None:
    with talk() as process:
        process.greet()
        assert process.outcome("raises", {"what": "retry"}) == Raised("Retry: later", after=ms(1))
        assert process.outcome("raises", {"what": "snooze"}) == Snoozed(ms(1))
        assert process.outcome("raises", {"what": "cancel"}) == Cancelled("not needed")
        assert process.outcome("raises", {"what": "fail"}) == Raised("Fail: useless", permanent=True)
        assert process.outcome("raises", {"what": "permanent"}).permanent
        assert process.outcome("odd.result").error.startswith("Invalid: result: cannot be written as JSON")
        assert process.outcome("cancels.itself") == Raised(CANCELLED_WITHIN)


ENDS: list[tuple[str, dict[str, str], object]] = [
    ("waits", {"says": ""}, None),
    ("waits", {"says": "success"}, Succeeded(b'"done all the same"')),
    ("looks", {}, Cancelled("as you asked")),
]


async def test_told_to_end_an_async_handler_is_cancelled_and_a_plain_one_can_look(tmp_path: Path) -> None:
    with talk() as process:
        process.greet()
        for n, (type, says, outcome) in enumerate(
            [
                ("waits", "", None),
                ("waits", "success", Succeeded(b'"done all the same"')),
                ("looks", "", Cancelled("as you asked")),
            ]
        ):
            file = tmp_path / str(n)
            process.give(type, {"file": str(file)} | ({"says": says} if type == "waits" else {}))
            await written(file)
            process.tell(End())
            assert process.hear_next(RunEnded).outcome == outcome


def test_told_to_end_before_the_handler_is_called_it_does_not_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_IMPORT", "0.5")
    with talk() as process:
        process.greet()
        process.give("waits", {"file": str(tmp_path / "begun"), "says": ""})
        process.tell(End())
        assert process.hear_next(RunEnded).outcome is None
        assert not (tmp_path / "begun").exists()


def test_told_to_end_while_nothing_runs_it_takes_the_next_job() -> None:
    with talk() as process:
        process.greet()
        process.tell(End())
        assert isinstance(process.outcome("pid.async"), Succeeded)
        process.tell(End())
        assert isinstance(process.outcome("pid.async"), Succeeded)


def test_memory_is_limited_for_the_run_that_it_was_given_for() -> None:
    with talk() as process:
        process.greet()
        assert process.outcome("limit") == Succeeded(b"-1")
        assert process.outcome("limit", memory=GIGABYTE) == Succeeded(str(GIGABYTE).encode())
        assert process.outcome("greedy", {"megabytes": 2000}, memory=GIGABYTE).error == "MemoryError"
        assert process.outcome("limit") == Succeeded(b"-1")


def test_log_records_are_sent_with_the_job_they_belong_to_and_as_text_that_can_be_sent() -> None:
    with talk() as process:
        process.greet()
        job = process.give("logs")
        odd, long, traced, foretold = (process.hear_next(Logged) for _ in range(4))
        assert isinstance(process.hear_next(RunEnded).outcome, Succeeded)
    assert (odd.name, odd.levelname, odd.job_id, odd.msg) == ("shop", "INFO", job.lease.id, "odd \\ud800 text")
    assert (long.msg, long.exc_text) == ("x" * MOST_TEXT, None)
    assert "Odd: caught" in (traced.exc_text or "")
    assert foretold.exc_text == "a traceback as text"
    assert "TypeError: not all arguments converted" in process.errors, "a record that cannot be written is no end"


def test_records_of_a_fork_go_to_stderr_and_its_end_is_its_own() -> None:
    with talk() as process:
        process.greet()
        assert process.outcome("forks") == Succeeded(b"[1,4,9,-15]")
        assert process.outcome("fork.warns") == Succeeded(str(-signal.SIGTERM).encode())
    assert process.errors.count("from a fork") == 1


def test_a_fork_can_be_told_to_stop_before_it_has_begun() -> None:
    with talk() as process:
        process.greet()
        assert process.outcome("forks.killed") == Succeeded(str([-signal.SIGTERM] * 20).replace(" ", "").encode())


SCRIPT = """
import logging
from demora import Demora
logging.basicConfig(level="INFO", format="of its own: %(message)s")
app = Demora()
@app.job("speaks", process=True)
def speaks():
    logging.getLogger("shop").info("spoken")
"""


def test_an_application_that_sets_up_logging_keeps_its_records(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    script = ImportPath("__main__", str(tmp_path / "script.py"))
    with talk() as process:
        process.greet(script)
        job = process.give("speaks", place=script)
        assert process.hear() == Began(job.lease)
        assert isinstance(process.hear(), RunEnded)
    assert "of its own: spoken" in process.errors


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("script.txt", SCRIPT, "ImportError: {file} cannot be imported"),
        ("script.py", SCRIPT + "raise LookupError('not here')", "LookupError: not here"),
        ("script.py", "", "AttributeError: module '__demora_main__' has no attribute 'app'"),
        ("script.py", SCRIPT.replace('"speaks"', '"other"'), "BadHandler: handler for 'speaks': importing {file} does not"),
    ],
)
def test_an_application_that_cannot_be_had_fails_each_run_with_the_reason(
    tmp_path: Path, name: str, text: str, error: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    script = ImportPath("__main__", str(file))
    with talk() as process:
        process.greet(script)
        for _ in range(2):
            assert process.outcome("speaks", place=script).error.startswith(error.format(file=file))


def test_a_handler_that_another_module_registers_is_found_there() -> None:
    with talk() as process:
        process.greet(HERE, ImportPath("tests.worker.more_process_jobs"))
        assert process.outcome("elsewhere") == Succeeded(b'"found"')


async def test_a_handler_enqueues_unless_the_database_is_out_of_its_reach(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with talk() as process:
        process.greet(database_url=url)
        id = process.outcome("enqueues").result.decode().strip('"')
    async with Demora(url) as app:
        assert (await app.get(id)).payload == {"from": "a process"}
    with talk() as process:
        process.greet(shared=False)
        assert "StoreError: the worker's database is in its memory" in process.outcome("enqueues").error


def test_signals_are_left_to_the_worker() -> None:
    with talk() as process:
        process.greet()
        assert isinstance(process.outcome("pid"), Succeeded)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
        assert isinstance(process.outcome("pid"), Succeeded)


def test_it_ends_when_a_handler_closes_its_pipe() -> None:
    with talk() as process:
        process.greet()
        process.give("closes")
        assert process.close() == 1


def test_it_ends_when_its_worker_dies_without_having_listened() -> None:
    with talk() as process:
        process.greet()
        process.give("pid")
        process.await_words()
        assert process.close() == 1


def test_it_ends_without_a_word_if_its_worker_never_speaks() -> None:
    with talk() as process:
        assert process.close() == 0
    assert process.errors == ""


async def test_it_takes_along_what_its_handler_started(tmp_path: Path) -> None:
    with talk(session=True) as process:
        process.greet()
        process.give("starts", {"file": str(tmp_path / "program")})
        program = await written(tmp_path / "program")
        assert process.close() == -signal.SIGKILL
        await eventually(lambda: is_gone(program), within=PATIENCE)


def test_a_handler_that_speaks_without_end_is_heard_in_pieces() -> None:
    with talk() as process:
        process.greet()
        job = process.give("floods", {"times": 300})
        log: list[str] = []
        said = process.hear()
        while not isinstance(said, RunEnded):
            log += [line for _, line in said.report.log] if isinstance(said, Said) else []
            said = process.hear()
        log += [line for _, line in said.report.log]
    assert (said.report.lease, said.outcome) == (job.lease, Succeeded(b"300"))
    assert (len(log), log[0]) == (201, "flood")
