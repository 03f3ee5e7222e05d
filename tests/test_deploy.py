"""What the page on deployment shows can be deployed: units, containers, and stop times that fit the grace."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from demora.core.spans import span
from tests.test_docs import PROJECT, blocks, take

PAGE = PROJECT / "docs" / "how-to" / "deploy.md"
TEXT = PAGE.read_text()
STARTED = re.findall(r"^(?:ExecStart=\S*/|    command: )(demora .*)$", TEXT, re.M)
BEYOND = 10  # seconds that a worker has beyond its grace


@pytest.mark.parametrize("command", STARTED)
def test_units_and_containers_start_what_demora_takes(command: str) -> None:
    take(command)


def test_service_worker_and_scheduler_are_started() -> None:
    assert {command.split()[1] for command in STARTED} == {"serve", "worker", "scheduler"}


@pytest.mark.parametrize(
    ("grace", "limit"),
    [(r"^DEMORA_GRACE=(\w+)$", r"^TimeoutStopSec=(\d+)$"), (r"^    DEMORA_GRACE: (\w+)$", r"^  stop_grace_period: (\d+)s$")],
    ids=["systemd", "containers"],
)
def test_whoever_stops_a_worker_waits_for_longer_than_its_grace(grace: str, limit: str) -> None:
    [given], [waited] = re.findall(grace, TEXT, re.M), re.findall(limit, TEXT, re.M)
    assert int(waited) >= span(given, "grace").total_seconds() + BEYOND


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze to judge units")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    files = dict(re.match(r"# /etc/systemd/system/(\S+)\n(.*)", block, re.S).groups() for block in units())  # type: ignore[union-attr]
    shared = next(text for name, text in files.items() if name.endswith(".conf"))
    for name, text in files.items():
        if name.endswith(".service"):
            (tmp_path / f"{name}.d").mkdir()
            (tmp_path / f"{name}.d" / "all.conf").write_text(shared)
            (tmp_path / name).write_text(re.sub("ExecStart=.*", "ExecStart=/bin/true", text))
    command = ["systemd-analyze", "verify", *map(str, tmp_path.glob("*.service"))]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")


def units() -> list[str]:
    return [block for block in blocks(PAGE, "ini") if "/systemd/system/" in block]
