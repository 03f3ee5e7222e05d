"""The search of the jobs page: the filters of a list of jobs as text, and its completions."""

import re
from datetime import datetime

import msgspec

from ..core.filters import GROUPS, NO_FILTER, JobFilter, filter_text, parse_filter
from ..core.states import Status

QUALIFIERS = {
    "status": "waiting, running, completed, failed, cancelled",
    "queue": "the name of a queue",
    "type": "the type of a job; email.* for all with this prefix",
    "tag": "one of its tags",
    "schedule": "the schedule that added it",
    "error": "the class of its error",
    "priority": "critical, high, normal, low",
    "created": "<2h within two hours, >2h before that, 2h..1d between",
    "due": "<2h within two hours from now",
    "ended": "<2h within the last two hours",
}
STATUSES: dict[str, frozenset[Status]] = {
    **GROUPS,
    "completed": frozenset({Status.COMPLETED}),
    "failed": frozenset({Status.FAILED}),
    "cancelled": frozenset({Status.CANCELLED}),
}
_STATUS = re.compile(r"(?<!\S)status:(\S+)")


class Search(msgspec.Struct, frozen=True):
    """A search as it was typed, and the filter that it means."""

    text: str = ""
    filter: JobFilter = NO_FILTER

    @property
    def status(self) -> str:
        """The word of its status, for the chip that is on; empty for all states, `other` for a mixture."""
        if not self.filter.statuses:
            return ""
        return next((word for word, statuses in STATUSES.items() if statuses == self.filter.statuses), "other")

    def with_status(self, word: str) -> str:
        """Return the text of this search for another status, or for all."""
        others = " ".join(_STATUS.sub("", self.text).split())
        return " ".join([*([f"status:{word}"] if word else []), *([others] if others else [])])


def search_text(filter: JobFilter) -> str:
    """Write a filter as a person would type it: `status:waiting` for the states of waiting jobs."""
    word = Search(filter=filter).status
    if word in ("", "other"):
        return filter_text(filter)
    return f"status:{word} {filter_text(msgspec.structs.replace(filter, statuses=frozenset()))}".rstrip()


def names_status(text: str) -> bool:
    """Whether a typed search names the states of its jobs."""
    return _STATUS.search(text) is not None


def read_search(text: str, now: datetime) -> Search:
    """Return what a typed search means. `Invalid` says which word is not understood."""
    return Search(" ".join(text.split()), parse_filter(text, now))
