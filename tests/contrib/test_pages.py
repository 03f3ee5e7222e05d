"""The code on the pages of frameworks is that of the examples, which other tests run."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = {"django": "django.md", "flask": "flask.md"}


@pytest.mark.parametrize(("example", "page"), PAGES.items())
def test_the_code_of_a_page_is_that_of_the_example(example: str, page: str) -> None:
    blocks = re.findall(r"^```py\n# ([\w/.]+)\n(.*?)^```$", (PROJECT / "docs" / "how-to" / page).read_text(), re.M | re.S)
    assert blocks
    for path, code in blocks:
        assert code in (PROJECT / "examples" / example / path).read_text(), f"{page}: {path}"
