import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from demora.engines.sqlite.connection import locking
from demora.engines.sqlite.connection.locking import LockTurns
from tests.facts import eventually

TAKES = """
import sys, time
from pathlib import Path
from demora.engines.sqlite.connection.locking import LockTurns

turns = LockTurns(Path(sys.argv[1]))
turns.take()
print("taken", flush=True)
time.sleep(600)
"""


def test_who_comes_second_waits_until_the_first_has_given_back(tmp_path: Path) -> None:
    first, second, passed = LockTurns(tmp_path), LockTurns(tmp_path), threading.Event()
    assert first.take()
    waiting = threading.Thread(target=lambda: (second.take(), passed.set()))
    waiting.start()
    assert not passed.is_set()
    first.give_back()
    assert passed.wait(60)
    waiting.join()


async def test_the_watchdog_sleeps_while_no_thread_waits(tmp_path: Path) -> None:
    async def is_awake() -> bool:
        return locking._watchdog._needed.is_set()

    first, second = LockTurns(tmp_path), LockTurns(tmp_path)
    second.pass_by = lambda: None
    assert first.take()
    waiting = threading.Thread(target=second.take, daemon=True)
    waiting.start()
    await eventually(is_awake)
    first.give_back()
    waiting.join()
    await eventually(is_awake, lambda awake: not awake, within=10)


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_the_queue(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", TAKES, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"taken\n"
    process.send_signal(signal.SIGKILL)
    assert LockTurns(tmp_path).take()
    process.stdout.close()
    process.wait()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_parents_turn(tmp_path: Path) -> None:
    first, hold, held = LockTurns(tmp_path), *os.pipe()
    assert first.take()
    child = os.fork()
    if child == 0:
        os.close(held)
        os.read(hold, 1)
        os._exit(0)
    first.close()  # without giving back, as one that is killed
    assert LockTurns(tmp_path).take()
    os.close(held)
    os.close(hold)
    os.waitpid(child, 0)


def test_where_no_queue_can_be_had_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not LockTurns(tmp_path / "file" / "folder").take()
    assert not LockTurns(None).take()
