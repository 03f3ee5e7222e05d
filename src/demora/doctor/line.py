"""Judges whether the Redis line agrees with the database."""

from collections.abc import Iterator, Sequence

from ..core.spans import plural
from ..line.reconcile import Reconciliation
from ..store.diagnostics import Finding

_SHOWN = 3  # ids in a finding
_REPAIR = "demora doctor --repair corrects it, demora rebuild refills the whole line"


def judge_line(line: Reconciliation | None) -> Iterator[Finding]:
    """Yield the findings about the line; none if there is no line."""
    if line is None:
        return
    if line.away is not None:
        fact = f"the Redis line is not in use ({line.away}): workers claim jobs from the database"
        yield Finding("line", "warning", fact, "check the server and DEMORA_REDIS_URL; demora uses the line again by itself")
    elif line.agrees:
        yield Finding("line", "ok", f"the Redis line has every job that is due soon ({line.waiting})")
    for ids, words in (
        (line.missing, "not in the line"),
        (line.surplus, "in the line but not waiting"),
        (line.misplaced, "at a wrong place in the line"),
    ):
        if ids and line.repaired:
            yield Finding("line", "ok", f"{_jobs(ids)} {words}: repaired")
        elif ids:
            yield Finding("line", "problem", f"{_jobs(ids)} {words}", _REPAIR)


def _jobs(ids: Sequence[str]) -> str:
    return f"{plural(len(ids), 'job')} ({', '.join(ids[:_SHOWN])}{', …' if len(ids) > _SHOWN else ''})"
