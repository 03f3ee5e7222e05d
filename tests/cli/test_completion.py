"""Completion: scripts for three shells, and names that never make or harm a database."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_demora(run: Run, shell: str) -> None:
    script = run("completion", shell).stdout
    assert "_DEMORA_COMPLETE" in script
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=script, text=True, check=True)


def completed(folder: Path, *words: str) -> list[str]:
    """What a shell would offer after these words, of which the last is begun."""
    environment = {
        "_DEMORA_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("demora", *words)),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "demora"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=os.environ | environment, check=False)
    assert said.stderr == ""
    return [line.removeprefix("plain,") for line in said.stdout.splitlines() if line]


def test_commands_options_and_queues_are_completed(run: Run, folder: Path) -> None:
    run("pause", "mail")
    run("enqueue", "demo.echo", "--queue", "mail")
    assert completed(folder, "pur") == ["purge"]
    assert completed(folder, "purge", "--old") == ["--older-than"]
    assert completed(folder, "jobs", "--queue", "ma") == ["mail"]
    assert completed(folder, "resume", "") == ["mail"]


def test_completing_makes_no_database_and_says_nothing(folder: Path) -> None:
    assert completed(folder, "pause", "") == []
    assert not list(folder.iterdir())
