"""The failures: dead letters in groups of one type and error class, and what can be done with a group as a whole."""

from functools import partial

import msgspec

from ...client.counts import FailureGroup
from ...client.statistics import TypesMetrics
from ...core.access import Scope
from ...core.filters import JobFilter, filter_text
from ...core.states import Status
from ...errors import SearchTooSlow, TooManySearches
from ..charts import SPANS, Spark, failed_data, per_step, spark
from ..reading import FLOW_READ_EVERY, PATIENCE, failure_groups
from ..visit import Route, View, Visit

MOST_DRAWN = 100  # types whose failures are drawn


class Group(msgspec.Struct, frozen=True):
    """A group of dead letters with its picture, and the search that finds its jobs; None where they have no error class."""

    of: FailureGroup
    drawn: Spark | None
    search: str | None


async def show_failures(visit: Visit) -> View:
    span = visit.query.get("span", "day")
    span = span if span in SPANS else "day"
    try:
        found, slow = await failure_groups(visit), False
    except (SearchTooSlow, TooManySearches):
        found, slow = [], True
    metrics = await _metrics(visit, span) if found else None
    flows = {} if metrics is None else {one.type: [point.failed for point in one.series] for one in metrics.types}
    drawn = {type: spark(points, f"failed jobs of type {type} in the last {span}") for type, points in flows.items()}
    values = {
        "page": "failures",
        "groups": [Group(one, drawn.get(one.type), search_of(one)) for one in found],
        "slow": slow,
        "total": sum(group.jobs for group in found),
        "recent": sum(group.by_age[0] for group in found),
        "failed_now": sum(map(sum, flows.values())),
        "chart": None if metrics is None else failed_data(metrics),
        "span": span,
        "spans": SPANS,
        "each": "" if metrics is None else per_step(metrics.step),
    }
    return View("failures.html", values)


async def _metrics(visit: Visit, span: str) -> TypesMetrics:
    read = partial(visit.client.metrics_types, span, limit=MOST_DRAWN)
    return await visit.shared.get(f"failed types {span}", FLOW_READ_EVERY, read, patience=PATIENCE)


def search_of(group: FailureGroup) -> str | None:
    """Return the search for the jobs of a group."""
    if not group.error:
        return None
    return filter_text(JobFilter(frozenset({Status.FAILED}), type=group.type, error=group.error))


ROUTES = (Route("GET", "/failures", Scope.READ, show_failures),)
