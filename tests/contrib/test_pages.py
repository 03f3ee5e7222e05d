"""The code on the pages of frameworks is that of the examples, which other tests run, and can be copied as it stands."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = {"django": "django.md", "flask": "flask.md"}


HOW_TO = PROJECT / "docs" / "how-to"


def files(page: Path) -> Iterator[tuple[str, str]]:
    """The blocks of a page that name their file, each with that name."""
    yield from re.findall(r"^```py(?:thon)?\n# ([\w/.]+)\n(.*?)^```$", page.read_text(), re.M | re.S)


@pytest.mark.parametrize(("example", "page"), PAGES.items())
def test_the_code_of_a_page_is_that_of_the_example(example: str, page: str) -> None:
    blocks = list(files(HOW_TO / page))
    assert blocks
    for path, code in blocks:
        assert code in (PROJECT / "examples" / example / path).read_text(), f"{page}: {path}"


@pytest.mark.parametrize("page", [*PAGES.values(), "fastapi.md", "other-frameworks.md"])
def test_a_file_on_a_page_imports_what_it_uses(page: str) -> None:
    for path, code in files(HOW_TO / page):
        options = ("--isolated", "--select=F821", "--output-format=concise", f"--stdin-filename={path}")
        command = [sys.executable, "-m", "ruff", "check", *options, "-"]
        run = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
