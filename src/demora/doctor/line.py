"""The Redis line, judged by how it agrees with the database."""

from collections.abc import Iterator, Sequence

from ..line.reconcile import Reconciliation
from ..store.diagnostics import Finding

_SHOWN = 3  # ids that are told
_REPAIR = "demora doctor --repair brings it in step, demora rebuild fills it anew"


def judge_line(line: Reconciliation | None) -> Iterator[Finding]:
    """What is to be said of the line, if there is one."""
    if line is None:
        return
    if line.away is not None:
        fact = f"the Redis line is not used ({line.away}): jobs are handed out by the database"
        yield Finding(
            "line", "warning", fact, "see whether the server runs and DEMORA_REDIS_URL is right; it is used again by itself"
        )
    elif line.agrees:
        yield Finding("line", "ok", f"every job that is due soon has its place in the Redis line ({line.waiting} of them)")
    for ids, words in (
        (line.missing, "not in the line"),
        (line.strays, "in the line although they do not wait"),
        (line.misplaced, "elsewhere in the line than their rows say"),
    ):
        if ids and line.repaired:
            yield Finding("line", "ok", f"{_jobs(ids)} {words}: repaired")
        elif ids:
            yield Finding("line", "problem", f"{_jobs(ids)} {words}", _REPAIR)


def _jobs(ids: Sequence[str]) -> str:
    count = f"{len(ids)} job" if len(ids) == 1 else f"{len(ids)} jobs"
    return f"{count} ({', '.join(ids[:_SHOWN])}{', …' if len(ids) > _SHOWN else ''})"
