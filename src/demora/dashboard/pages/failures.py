"""The failures: dead letters in groups of one type and error class, and what can be done with a group as a whole."""

from functools import lru_cache

import msgspec
from markupsafe import Markup

from ...client.counts import FailureGroup
from ...client.statistics import TypesMetrics
from ...core.access import Scope
from ...core.filters import JobFilter, filter_text
from ...core.states import Status
from ..charts import SPANS, Spark, failed_data, per_step, spark
from ..drawing import draw_part, tell_times
from ..reading import FLOW_READ_EVERY, failure_groups, read_activity, totals
from ..visit import Route, View, Visit, address

MOST_GROUPS = 50  # on the page, the largest
MOST_DRAWN = 100  # types whose failures are drawn


class FailurePictures(msgspec.Struct, frozen=True):
    """The failures of a span: a sparkline for each type, the chart of all, their number, and how long a step is."""

    types: dict[str, Spark | None] = {}
    chart: str | None = None
    failed: int = 0
    each: str = ""


async def show_failures(visit: Visit) -> View:
    span = visit.query.get("span", "day")
    span = span if span in SPANS else "day"
    grouped = await failure_groups(visit)
    found, shown, may = grouped.groups, grouped.groups[:MOST_GROUPS], visit.may("operate")
    drawn = (await _drawn(visit, span) if found else None) or FailurePictures()
    values = {
        "page": "failures",
        "rows": tell_times((draw_group(one, drawn.types.get(one.type), visit.base, may) for one in shown), visit.now),
        "shown": len(shown),
        "is_whole": len(found) <= MOST_GROUPS,
        "slow": grouped.slow,
        "reading": grouped.reading,
        "total": totals((await read_activity(visit)).queues).dead,
        "recent": sum(group.by_age[0] for group in found),
        "failed_now": drawn.failed,
        "chart": drawn.chart,
        "span": span,
        "spans": SPANS,
        "each": drawn.each,
    }
    return View("failures.html", values)


@lru_cache(4 * MOST_GROUPS)  # they are grouped anew every 30 seconds, and most have not changed then
def draw_group(group: FailureGroup, drawn: Spark | None, base: str, may_act: bool) -> Markup:
    """Return the row of a group, with times that `tell_times` tells. Jobs without an error class cannot be searched for, so
    their row leads to the newest of them."""
    search, sample = search_of(group), address(base, "jobs", group.sample_id)
    there = sample if search is None else address(base, "jobs", q=search)
    asks = [address(base, "actions", "ask", verb, q=search) if search and may_act else "" for verb in ("retry", "delete")]
    return draw_part("failure_row", group, drawn, base, there, sample, *asks)


async def _drawn(visit: Visit, span: str) -> FailurePictures | None:
    """Return the pictures of a span; None while it is read for the first time. All pages share them, since drawing takes
    longer than writing the page."""

    async def read() -> FailurePictures:
        return _draw(await visit.client.metrics_types(span, limit=MOST_DRAWN), span)

    return await visit.read_soon(f"failed types {span}", FLOW_READ_EVERY[span], read)


def _draw(metrics: TypesMetrics, span: str) -> FailurePictures:
    flows = {one.type: [point.failed for point in one.series] for one in metrics.types}
    return FailurePictures(
        types={type: spark(points, f"failed jobs of type {type} in the last {span}") for type, points in flows.items()},
        chart=failed_data(metrics),
        failed=sum(map(sum, flows.values())),
        each=per_step(metrics.step),
    )


def search_of(group: FailureGroup) -> str | None:
    """Return the search for the jobs of a group."""
    if not group.error:
        return None
    return filter_text(JobFilter(frozenset({Status.FAILED}), type=group.type, error=group.error))


ROUTES = (Route("GET", "/failures", Scope.READ, show_failures),)
