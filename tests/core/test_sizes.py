"""Sizes as people write them."""

import pytest

from demora.core.spans import size
from demora.errors import Invalid


@pytest.mark.parametrize(("text", "bytes"), [("1KB", 1024), ("512MB", 512 * 1024**2), ("1.5GB", 3 * 1024**3 // 2)])
def test_a_size_is_a_number_and_a_unit(text: str, bytes: int) -> None:
    assert size(text, "memory") == bytes


@pytest.mark.parametrize("text", ["", "512", "512mb", "0MB", "-1MB", "1 MB", "1TBs", 512, None])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="memory: a size is text like '512MB'"):
        size(text, "memory")
