"""`demora queues --watch`: what each snapshot shows, and that Ctrl-C ends it well."""

import json
import os
import pty
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demora.cli.queues import Rates, rates
from demora.store.diagnostics import Activity
from demora.store.jobs import Queue
from tests.cli.conftest import Run, Start, read_until

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def activity(*queues: Queue, **added: int) -> Activity:
    return Activity(NOW, 1, list(queues), added)


def test_what_was_added_and_is_not_there_any_more_has_left() -> None:
    before = activity(Queue("mail", ready=5, processing=1))
    now = activity(Queue("mail", ready=4, delayed=1, processing=2, dead=1), Queue("new", ready=2), mail=12, new=2)
    assert rates(before, now, 2.0) == {"mail": Rates(6.0, 5.0), "new": Rates(1.0, 0.0)}


def test_jobs_that_come_back_by_hand_are_no_negative_rate() -> None:
    assert rates(activity(Queue("mail")), activity(Queue("mail", ready=3)), 1.0) == {"mail": Rates(0.0, 0.0)}


@pytest.mark.parametrize(
    "words", [("--interval", "1s"), ("--watch", "--interval", "10ms"), ("--watch", "--interval", "soon")]
)
def test_an_interval_that_means_nothing_is_a_usage_error(run: Run, words: tuple[str, ...]) -> None:
    run("migrate")
    assert run("queues", *words).exit_code == 2


@pytest.mark.slow
def test_snapshots_follow_each_other_until_ctrl_c(start: Start, run: Run) -> None:
    run("enqueue", "demo.echo", "--queue", "mail")
    watching = start("queues", "--watch", "--interval", "100ms")
    said = read_until(watching, "no live workers", "stdout")
    assert said.splitlines()[1].split()[:7] == ["QUEUE", "READY", "DELAYED", "PROCESSING", "DEAD", "IN/S", "OUT/S"]
    assert said.splitlines()[2].split()[:5] == ["mail", "1", "0", "0", "0"]
    read_until(watching, "no live workers", "stdout")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(20) == 0
    assert watching.communicate()[1] == ""


@pytest.mark.slow
def test_snapshots_can_be_read_by_machines(start: Start, run: Run) -> None:
    run("enqueue", "demo.echo", "--queue", "mail")
    read_until(start("worker", "--queues", "other"), "started")
    watching = start("queues", "--watch", "--json", "--interval", "100ms")
    first, second = (json.loads(read_until(watching, "queues", "stdout")) for _ in range(2))
    assert (first["queues"][0]["name"], first["queues"][0]["addedPerSecond"]) == ("mail", None)
    assert (second["queues"][0]["addedPerSecond"], second["queues"][0]["endedPerSecond"]) == (0.0, 0.0)
    assert second["queues"][0]["dueSince"].endswith("Z")
    assert (second["workers"][0]["running"], second["workers"][0]["slots"]) == (0, 20)


@pytest.mark.slow
def test_on_a_terminal_it_redraws_in_place_and_gives_the_cursor_back(run: Run, folder: Path) -> None:
    run("enqueue", "demo.echo", "--queue", "mail")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "demora", "queues", "--watch", "--interval", "100ms"]
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=os.environ | {"TERM": "xterm"}
    )
    os.close(theirs)
    seen = b""
    while seen.count(b"QUEUE") < 3:
        seen += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    rest = os.read(ours, 65536)
    os.close(ours)
    assert b"\x1b[1A" in seen  # the cursor goes up, over what was drawn
    assert (seen + rest).rindex(b"\x1b[?25h") > (seen + rest).rindex(b"\x1b[?25l")
