"""Headers that a caller may ask for: none that says where a message ends, where it goes or who carries it on."""

import re
from collections.abc import Mapping

from ..errors import Invalid

MOST_HEADERS, MOST_BYTES = 50, 16 * 1024

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"}
) | {
    "expect",
    "accept-encoding",
    "http2-settings",
}
_OURS_BEGIN = ("proxy-", "webhook-", ":")


def check_headers(headers: Mapping[str, str], field: str = "headers") -> dict[str, str]:
    """The headers, checked; `Invalid` names the one that must not be sent, and repeats no value."""
    if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers.items()) > MOST_BYTES:
        raise Invalid(field, f"at most {MOST_HEADERS} headers of {MOST_BYTES:,} bytes together are allowed")
    seen = set[str]()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise Invalid(field, "a name is made of letters, digits and dashes")
        if not _VALUE.fullmatch(value):
            raise Invalid(f"{field}.{name}", "a value is one line of ASCII text, without control characters")
        if name.lower() in _OURS or name.lower().startswith(_OURS_BEGIN):
            raise Invalid(f"{field}.{name}", "is set by demora itself and cannot be asked for")
        if name.lower() in seen:
            raise Invalid(f"{field}.{name}", "is there twice")
        seen.add(name.lower())
    return dict(headers)
