"""Type checkers find the mistakes in a user's file, and nothing else in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SHOP = Path(__file__).with_name("shop.py")
MISTAKES = {n for n, line in enumerate(SHOP.read_text().splitlines(), 1) if line.endswith("# error")}


def test_mypy_finds_the_mistakes_of_a_user_and_no_others(tmp_path: Path) -> None:
    options = ("--strict", "--config-file=", f"--cache-dir={tmp_path}", "--no-error-summary", "--python-version=3.11")
    run = subprocess.run([sys.executable, "-m", "mypy", *options, str(SHOP)], capture_output=True, text=True, check=False)
    found = {int(line) for line in re.findall(rf"{SHOP.name}:(\d+): error", run.stdout)}
    assert found == MISTAKES, run.stdout + run.stderr


def test_pyright_finds_the_mistakes_of_a_user_and_no_others(tmp_path: Path) -> None:
    options = ("--outputjson", "--pythonversion=3.11", f"--pythonpath={sys.executable}")
    command = [sys.executable, "-m", "pyright", *options, str(SHOP)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = {one["range"]["start"]["line"] + 1: one["message"] for one in json.loads(run.stdout)["generalDiagnostics"]}
    assert set(found) == MISTAKES, found
