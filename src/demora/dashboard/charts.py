"""Charts and sparklines from the statistics of runs. Pure: what a picture shows is computed here, and templates place it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from markupsafe import Markup

from ..client.statistics import FlowPoint, FlowSeries, TypesMetrics
from ..core.spans import timestamp
from .drawing import measured_ms

SPANS = {"hour": "Hour", "day": "Day", "week": "Week"}
SPARK_WIDTH, SPARK_HEIGHT = 100, 28


class Spark(msgspec.Struct, frozen=True):
    """A sparkline as the paths of an SVG: its line and the area below it. Missing values are gaps."""

    flat: bool  # all values are zero
    line: Markup  # digits and letters: escaping them in every page would cost more than drawing them
    area: Markup
    words: str


def spark(values: Sequence[float | None], words: str) -> Spark | None:
    """Draw values, oldest first, from zero to their largest. None if there are fewer than two."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    most, step = max(known) or 1, SPARK_WIDTH / (len(values) - 1)
    line, area = [], []
    for stretch in _stretches(values):
        points = [
            (round(n * step, 2), round(SPARK_HEIGHT - 1 - (SPARK_HEIGHT - 3) * value / most, 2)) for n, value in stretch
        ]
        path = "L".join(f"{x} {y}" for x, y in points)
        line.append(f"M{path}")
        area.append(f"M{points[0][0]} {SPARK_HEIGHT}L{path}L{points[-1][0]} {SPARK_HEIGHT}Z")
    return Spark(not any(known), Markup("".join(line)), Markup("".join(area)), words)


def _stretches(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Split values at the gaps between them."""
    found: list[list[tuple[int, float]]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append((n, value))
    return [stretch for stretch in found if stretch]


def whole_steps(series: Sequence[FlowPoint]) -> Sequence[FlowPoint]:
    """Leave out the last step, which has not ended: it would look like a fall. If no other has runs, it stays."""
    earlier = series[:-1]
    return earlier if any(point.completed or point.failed or point.retried for point in earlier) else series


def drawn_flow(flow: FlowSeries | None) -> dict[str, Any]:
    """Return what a page shows of runs: their totals, charts and sparklines. Without a flow, which is still being read, it
    has no totals, and its charts have no data."""
    if flow is None:
        return {"flow": None, "lateness": None, "charts": {"runs": "", "late": ""}, "sparks": sparks([]), "each": ""}
    late = flow.total.lateness
    return {
        "flow": flow.total,
        "lateness": None if late.p50 is None else {"p50": measured_ms(late.p50), "p99": measured_ms(late.p99)},
        "charts": chart_data(flow.series, flow.step),
        "sparks": sparks(flow.series),
        "each": per_step(flow.step),
    }


def chart_data(series: Sequence[FlowPoint], step_ms: int) -> dict[str, str]:
    """Return the data of both charts as JSON for the script: the runs of each step, and how late they began. Where there
    were no runs it is `null`.

    Both have the same times, so they share one axis.
    """
    points = whole_steps(series)
    at = [round(point.at.timestamp()) for point in points]
    runs = [
        _series("completed", "completed", [point.completed for point in points], fill=True),
        _series("failed", "failed", [point.failed + point.retried for point in points]),
    ]
    late = [
        _series("p99", "ready", [point.lateness_p99 for point in points], fill=True),
        _series("p50", "ready", [point.lateness_p50 for point in points], dashed=True),
    ]
    step = step_ms // 1000
    return {"runs": _data(at, step, "jobs", runs), "late": _data(at, step, "ms", late)}


def _data(at: Sequence[int], step: int, unit: str, series: Sequence[Mapping[str, Any]]) -> str:
    """Return the data of a chart; `null` if it has nothing to show: no value, or of jobs only zeros."""
    seen = (value for one in series for value in one["values"])
    shown = any(seen) if unit == "jobs" else any(value is not None for value in seen)
    return json.dumps({"at": at, "step": step, "unit": unit, "series": series} if shown else None)


def _series(label: str, state: str, values: Sequence[float | None], **style: bool) -> dict[str, Any]:
    return {"label": label, "state": state, "values": list(values), **style}


def per_step(step_ms: int) -> str:
    """Say how long one step of the charts is."""
    step = timedelta(milliseconds=step_ms)
    return {60: "one point per minute", 900: "one point per 15 minutes", 3600: "one point per hour"}.get(
        round(step.total_seconds()), f"one point per {step}"
    )


class DueBar(msgspec.Struct, frozen=True):
    """A bar of the due strip: its place and width in percent, its height, how many jobs come due from `at` on, and the
    address of their list."""

    x: float
    width: float
    height: float
    jobs: int
    at: datetime
    link: str


class Tick(msgspec.Struct, frozen=True):
    """A time below the due strip, and its place in percent."""

    x: float
    at: datetime


class DueStrip(msgspec.Struct, frozen=True):
    """What comes due: bars, times below them, how the times are written, how many jobs in all, and the highest bar."""

    bars: list[DueBar]
    ticks: list[Tick]
    form: str
    jobs: int
    peak: DueBar | None


AHEAD = {"hour": (timedelta(hours=1), 60), "day": (timedelta(days=1), 48), "week": (timedelta(days=30), 30)}
AHEAD_WORDS = {"hour": "next hour", "day": "next day", "week": "next 30 days"}
_TICKS = {  # the distance of the times below the strip, and how they are written
    "hour": (timedelta(minutes=10), "minute"),
    "day": (timedelta(hours=3), "hour"),
    "week": (timedelta(days=5), "date"),
}
STRIP_HEIGHT = 56
_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)


def due_strip(counts: Sequence[int], span: str, now: datetime, link: Callable[[str], str]) -> DueStrip:
    """Draw what comes due from now on. `link` makes the address of a search."""
    until, most = AHEAD[span][0], max(counts, default=0) or 1
    step, wide = until / max(len(counts), 1), 100 / max(len(counts), 1)
    bars = []
    for n, jobs in enumerate(counts):
        since, before = now + n * step, now + (n + 1) * step
        height = round(max(3.0, STRIP_HEIGHT * jobs / most), 1) if jobs else 1.0
        there = link(f"due:{timestamp(since)}..{timestamp(before)}") if jobs else ""
        bars.append(DueBar(round(n * wide, 3), round(wide * 0.86, 3), height, jobs, since, there))
    peak = max(bars, key=lambda bar: bar.jobs, default=None)
    return DueStrip(bars, _ticks(span, now, until), _TICKS[span][1], sum(counts), peak if peak and peak.jobs else None)


def _ticks(span: str, now: datetime, until: timedelta) -> list[Tick]:
    """Return whole times in the span, none so near to its ends that its words would be cut off."""
    apart = _TICKS[span][0]
    at = _BEGIN + ((now - _BEGIN) // apart + 1) * apart
    ticks = []
    while at < now + until:
        x = round(100 * ((at - now) / until), 2)
        if 4 <= x <= 96:
            ticks.append(Tick(x, at))
        at += apart
    return ticks


class QueuePictures(msgspec.Struct, frozen=True):
    """The pictures of all queues: a sparkline for each, and the data of the chart of their waiting jobs. They are empty
    while the runs are still being read."""

    completed: dict[str, Spark | None] = {}
    depth: str = ""


def draw_queues(flows: Mapping[str, FlowSeries]) -> QueuePictures:
    completed = {
        queue: spark([point.completed for point in whole_steps(flow.series)], "completed runs")
        for queue, flow in flows.items()
    }
    return QueuePictures(completed, depth_data(flows))


def depth_data(flows: Mapping[str, FlowSeries]) -> str:
    """Return the data of the chart of waiting jobs by queue, for the script."""
    lines = [(queue, [_waiting(point) for point in flow.series]) for queue, flow in flows.items()]
    first = next(iter(flows.values()), None)
    return _lines([], 0, lines, "scheduled") if first is None else _lines(first.series, first.step, lines, "scheduled")


def failed_data(metrics: TypesMetrics) -> str:
    """Return the data of the chart of failed jobs by type, for the script."""
    lines: list[ChartLine] = [(one.type, [point.failed for point in one.series]) for one in metrics.types]
    points = metrics.types[0].series if metrics.types else []
    return _lines(points, metrics.step, lines, "failed")


ChartLine = tuple[str, Sequence[int | None]]


def _lines(points: Sequence[FlowPoint], step: int, lines: Sequence[ChartLine], state: str) -> str:
    """Return the data of a chart with a line for each of the largest, and one for the others together.

    Colour means state, so the lines share one and differ in strength.
    """
    high = sorted((one for one in lines if any(one[1])), key=lambda one: -max(value or 0 for value in one[1]))
    named = high[:MOST_LINES]
    if len(high) > MOST_LINES:
        columns = zip(*(values for _, values in high[MOST_LINES:]), strict=True)
        named.append((f"{len(high) - MOST_LINES} others", [_sum(column) for column in columns]))
    series = [
        {**_series(_short(name), state, values, fill=n == 0), "strength": _STRENGTHS[n]}
        for n, (name, values) in enumerate(named)
    ]
    at = [round(point.at.timestamp()) for point in points]
    return _data(at, step // 1000, "jobs", series)


MOST_LINES = 3  # queues or types with a line of their own
_STRENGTHS = (1, 0.7, 0.5, 0.4)


def _waiting(point: FlowPoint) -> int | None:
    return None if point.ready is None or point.delayed is None else point.ready + point.delayed


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"


def sparks(points: Sequence[FlowPoint]) -> dict[str, Spark | None]:
    """Return the sparklines of the four figures."""
    points = whole_steps(points)
    return {
        "ready": spark([point.ready for point in points], "ready jobs"),
        "completed": spark([point.completed for point in points], "completed runs"),
        "delayed": spark([point.delayed for point in points], "delayed jobs"),
        "failed": spark([point.failed for point in points], "failed jobs"),
    }
