"""Sizes at the border: `512MB`, `2GB`."""

import re

from ..errors import Invalid

_UNITS = {"KB": 1024, "MB": 1024**2, "GB": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(KB|MB|GB)")


def size(value: str, field: str) -> int:
    """The bytes that `value` means; a kilobyte has 1024. Refuses bare numbers and nothing at all."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (meant := int(float(found[1]) * _UNITS[found[2]])):
        raise Invalid(field, "a size is text like '512MB' or '2GB'")
    return meant
