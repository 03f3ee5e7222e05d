"""The `Prefer` header (RFC 7240): how a caller wants to be answered. The service ignores unknown preferences."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from starlette.datastructures import Headers

from ...wire.requests import LONGEST_WAIT

_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Prefer(NamedTuple):
    """How long to wait for the end of a job, at most `LONGEST_WAIT`, and whether to answer before the end."""

    wait: timedelta | None = None
    respond_async: bool = False

    @property
    def applied(self) -> str:
        """The value of Preference-Applied; empty if there is no preference."""
        wait = [] if self.wait is None else [f"wait={self.wait // timedelta(seconds=1)}"]
        return ", ".join(["respond-async"] * self.respond_async + wait)


NO_PREFERENCE = Prefer()


def read_prefer(headers: Headers) -> Prefer:
    """Return the preferences of a request. Of a repeated one the first counts, and a malformed one is ignored."""
    if "prefer" not in headers:
        return NO_PREFERENCE
    given: dict[str, str] = {}
    for name, value in _preferences(headers):
        given.setdefault(name, value)
    seconds = _SECONDS.fullmatch(given.get("wait", ""))
    wait = None if seconds is None else min(timedelta(seconds=int(seconds[0])), LONGEST_WAIT)
    return Prefer(wait, given.get("respond-async") == "")


def _preferences(headers: Headers) -> Iterator[tuple[str, str]]:
    for preference in ",".join(headers.getlist("prefer")).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        yield name.strip().lower(), value.strip().removeprefix('"').removesuffix('"')
