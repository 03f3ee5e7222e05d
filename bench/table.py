"""The goals, and the one table that figures are shown in."""

from rich.console import Console
from rich.table import Table

LISTS = ("by status", "by queue and status", "by type and status", "by tag", "by error class", "by a range of its order")
Goals = dict[str, tuple[str, float]]

_SCHEDULES: Goals = {
    "fire time to job p50 ms": ("≤", 5),
    "fire time to job p99 ms": ("≤", 20),
    "steady fire times / asked": ("≥", 0.99),  # of 1,000 per second, since the last one takes its time too
    "all jobs of one instant, s": ("≤", 1),  # of 10,000 schedules
    "fire times with two jobs": ("≤", 0),
    "fire times without a job": ("≤", 0),
    "fired early": ("≤", 0),
}
_ANYWHERE: Goals = _SCHEDULES | {
    "enqueue / floor": ("≥", 0.70),
    "enqueue_many / floor": ("≥", 0.35),
    "drain / floor": ("≥", 0.35),
    "idle statements per second": ("≤", 1),
    "early": ("≤", 0),
    "drain, counted / uncounted": ("≥", 0.95),
    "CPU, uncounted / counted": ("≥", 0.95),
    "slowest list p95 ms": ("≤", 50),
    **{f"list {kind} p95 ms": ("≤", 50) for kind in LISTS},
    "enqueue_many, with indexes for lists / without": ("≥", 0.95),
    "drain, with indexes for lists / without": ("≥", 0.95),
    "idle worker, % of a core": ("<", 0.5),
    "claim beside unknown types / none": ("≤", 2),
    "claim beside others' types / none": ("≤", 2),
    "claim beside many queue names / none": ("≤", 2),
    "drain, with types / without": ("≥", 0.95),
    "stats, fresh, ms": ("≤", 300),
    "stats, shared, p99 ms": ("≤", 20),
    "http, our server / httptools": ("≥", 0.9),
    "http: GET / bare": ("≥", 0.7),
    "http: POST / bare": ("≥", 0.5),
    "remote: jobs/s": ("≥", 5000),
    "500 idle remote workers, % of a core": ("≤", 5),
    "dashboard: slowest page p95 ms": ("≤", 50),
    "dashboard: 50 pages open, % of a core": ("≤", 2),
}
GOALS: dict[str, Goals] = {
    "sqlite": _ANYWHERE
    | {
        "http: POST / bare": ("≥", 0.6),
        "enqueue, 64 tasks": ("≥", 15_000),
        "drain / huey": ("≥", 8),
        "drain, two workers / one": ("≥", 0.85),
        "pick-up in process p99 ms": ("≤", 5),
        "pick-up across processes p99 ms": ("≤", 30),
        "lateness p50 ms": ("≤", 2),
        "lateness p99 ms": ("≤", 8),
        "flood / drain": ("≥", 0.80),
        "pick-up in the flood p99 ms": ("≤", 40),
        "paced flood p99 beyond idle, ms": ("≤", 5),
        "slots unlike the oracle": ("≤", 0),
        "claim beside a million / none": ("≤", 1.5),
        "file bytes per job": ("≤", 350),
        "32 processes / 2": ("≥", 0.5),
    },
    "lined file": _SCHEDULES
    | {
        "early": ("≤", 0),
        "paced flood p99 beyond idle, ms": ("≤", 5),
        "slots unlike the oracle": ("≤", 0),
    },
    "postgres": _ANYWHERE
    | {
        "enqueue, 64 tasks": ("≥", 10_000),
        "drain / procrastinate": ("≥", 10),
        "pick-up in process p99 ms": ("≤", 8),
        "pick-up across processes p99 ms": ("≤", 8),
        "lateness p50 ms": ("≤", 3),
        "lateness p99 ms": ("≤", 10),
        "pick-up in the flood p99 ms": ("≤", 50),
        "paced flood p99 beyond idle, ms": ("≤", 5),
        "slots unlike the oracle": ("≤", 0),
        "claim, laden / alone": ("≤", 2),
    },
    "line": _SCHEDULES
    | {
        "http: GET / bare": ("≥", 0.7),
        "http: POST / bare": ("≥", 0.5),
        "enqueue_many / floor": ("≥", 0.45),
        "drain / floor": ("≥", 0.50),
        "drain / fastest rival on Redis": ("≥", 3),
        "pick-up in process p99 ms": ("≤", 8),
        "pick-up across processes p99 ms": ("≤", 8),
        "lateness p50 ms": ("≤", 3),
        "lateness p99 ms": ("≤", 10),
        "early": ("≤", 0),
        "pick-up in the flood p99 ms": ("≤", 50),
        "paced flood p99 beyond idle, ms": ("≤", 5),
        "slots unlike the oracle": ("≤", 0),
        "through with Redis away / alone": ("≥", 0.5),
        "100,000 due jobs back in line, s": ("≤", 5),
        "Redis MB for 1,000,000 jobs over 24 h": ("≤", 10),
        "Redis MB with another 1,000,000 beyond the horizon": ("≤", 10),
    },
}


def show(report: dict[str, float], goals: Goals) -> None:
    table = Table("what", "figure", "goal", "")
    table.columns[1].justify = "right"
    for name, value in report.items():
        sign, goal = goals.get(name, ("", 0.0))
        table.add_row(name, _figure(value), f"{sign} {goal:g}" if sign else "", _mark(value, sign, goal))
    Console().print(table)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mark(value: float, sign: str, goal: float) -> str:
    if not sign:
        return ""
    return "met" if {"≥": value >= goal, "≤": value <= goal, "<": value < goal}[sign] else "missed"
