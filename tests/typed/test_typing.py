"""Type checkers find the mistakes in a user's files, and nothing else in them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FILES = [Path(__file__).with_name(name) for name in ("shop.py", "frameworks.py")]
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)]


def mistakes(file: Path) -> set[int]:
    return {n for n, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# error")}


def test_mypy_finds_the_mistakes_of_a_user_and_no_others(file: Path, tmp_path: Path) -> None:
    options = ("--strict", "--config-file=", f"--cache-dir={tmp_path}", "--no-error-summary", "--python-version=3.11")
    run = subprocess.run([sys.executable, "-m", "mypy", *options, str(file)], capture_output=True, text=True, check=False)
    found = {int(line) for line in re.findall(rf"{file.name}:(\d+): error", run.stdout)}
    assert found == mistakes(file), run.stdout + run.stderr


def test_pyright_finds_the_mistakes_of_a_user_and_no_others(file: Path, tmp_path: Path) -> None:
    options = ("--outputjson", "--pythonversion=3.11", f"--pythonpath={sys.executable}")
    command = [sys.executable, "-m", "pyright", *options, str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    reported = json.loads(run.stdout)["generalDiagnostics"]
    errors = [one for one in reported if one["severity"] == "error"]  # not that Django 5 lacks what its types have
    found = {one["range"]["start"]["line"] + 1: one["message"] for one in errors}
    assert set(found) == mistakes(file), found
