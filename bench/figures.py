"""Which figures each case gives, and in how many rounds they are taken."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from bench import (
    cases,
    counted,
    crowd,
    dashboard,
    flood,
    floor,
    http,
    huey,
    laden,
    lines,
    lists,
    million,
    paced,
    procrastinate,
    remote,
    saq,
    schedules,
    strangers,
    worth,
)
from bench.databases import Databases, LinedServers
from bench.stage import Wait
from tests.stalls import Stalls, covered

HUEY_JOBS = PROCRASTINATE_JOBS = 1000
REDIS_JOBS = 5000  # of each rival on Redis
REFILLED = 100_000
MILLION = 1_000_000


class Round:
    """The figures of one round. What several cases are compared with is measured at most once."""

    def __init__(self, on: Databases, jobs: int, share: float, stalls: Stalls) -> None:
        self.on, self.jobs, self.share, self._stalls = on, jobs, share, stalls
        self.figures: dict[str, float] = {}

    @cached_property
    def floor(self) -> dict[str, float]:
        found = asyncio.run(floor.measure(self.on.floor(), self.jobs))
        self.figures |= {f"floor {name}": value for name, value in found.items()}
        return found

    @cached_property
    def drain(self) -> float:
        self.figures["drain"] = found = asyncio.run(cases.drain(self.on, self.jobs))
        return found

    def spread(self, name: str, waits: Sequence[Wait]) -> dict[str, float]:
        """The median and the 99th percentile of those waits in which the machine did not stand still, and of all."""
        first, last = min(begin for begin, _ in waits), max(end for _, end in waits)
        stalls = [stall for stall in asyncio.run(self._stalls.until(last)) if stall[1] > first]
        awake = [end - begin for begin, end in waits if not covered(stalls, begin, end)]
        if len(awake) < len(waits) / 2:
            raise RuntimeError("the machine stood still in most waits: it is too busy to measure them")
        raw = _spread(name, [end - begin for begin, end in waits])
        raw = {f"{what}, and stalls": value for what, value in raw.items() if "p99" in what}
        return _spread(name, awake) | raw | {f"{name}: met by stalls, %": 100 * (1 - len(awake) / len(waits))}


def enqueue(here: Round) -> None:
    found, bare = asyncio.run(cases.enqueue_single(here.on))
    here.figures |= {"enqueue": found, "floor enqueue, in turns": bare, "enqueue / floor": found / bare}


def enqueue_from_tasks(here: Round) -> None:
    here.figures[f"enqueue, {cases.TASKS} tasks"] = asyncio.run(cases.enqueue_from_tasks(here.on, here.jobs))


def enqueue_many(here: Round) -> None:
    bare = here.floor["batch_insert"]
    here.figures["enqueue_many"] = found = asyncio.run(cases.enqueue_many(here.on, here.jobs))
    here.figures["enqueue_many / floor"] = found / bare


def drain(here: Round) -> None:
    here.figures["drain / floor"] = here.drain / here.floor["drain"]


def drain_beside_huey(here: Round) -> None:
    drain(here)
    here.figures["huey drain"] = found = huey.drain(HUEY_JOBS)
    here.figures["drain / huey"] = here.drain / found


def drain_beside_procrastinate(here: Round) -> None:
    drain(here)
    here.figures["procrastinate drain"] = found = asyncio.run(procrastinate.drain(here.on, PROCRASTINATE_JOBS))
    here.figures["drain / procrastinate"] = here.drain / found


def drain_beside_redis(here: Round) -> None:
    drain(here)
    url = _lined(here).line.url
    here.figures["saq drain"] = by_saq = saq.drain(url, REDIS_JOBS)
    here.figures["huey drain on Redis"] = by_huey = huey.drain_on_redis(url, REDIS_JOBS)
    here.figures["drain / fastest rival on Redis"] = here.drain / max(by_saq, by_huey)


def drain_two(here: Round) -> None:
    one = here.drain
    here.figures["drain, two workers"] = found = asyncio.run(cases.drain(here.on, here.jobs, 2))
    here.figures["drain, two workers / one"] = found / one


def statistics_cost(here: Round) -> None:
    here.figures |= asyncio.run(counted.cost(here.on, here.jobs))


def listed(here: Round) -> None:
    here.figures |= asyncio.run(lists.lists(here.on, here.share))


def cost_of_lists(here: Round) -> None:
    here.figures |= asyncio.run(lists.cost(here.on, here.jobs))


def pick_up(here: Round) -> None:
    here.figures |= here.spread("pick-up in process", asyncio.run(cases.pick_up_in_process(here.on, 500)))
    here.figures |= here.spread("pick-up across processes", asyncio.run(cases.pick_up_across(here.on, 500)))
    here.figures |= here.spread("bare commit", asyncio.run(cases.bare_commits(here.on, 500)))
    here.figures["idle statements per second"] = asyncio.run(cases.idle_statements(here.on, 30))


def lateness(here: Round) -> None:
    late = asyncio.run(cases.lateness(here.on, 1000, 10))
    here.figures |= here.spread("lateness", late)
    here.figures["early"] = float(sum(start < due for due, start in late))


def flooded(here: Round) -> None:
    usual = here.drain
    jobs = max(60_000, int(1.3 * flood.ENOUGH * flood.EACH * usual) // 500 * 500)  # so that enough is sent before its end
    rate, waits = asyncio.run(flood.flood(here.on, jobs))
    here.figures |= {"flood": rate, "flood / drain": rate / usual}
    here.figures |= here.spread("pick-up in the flood", waits)


def paced_flood(here: Round) -> None:
    idle_ = here.spread("pick-up across processes, idle", asyncio.run(cases.pick_up_across(here.on, 500)))
    waits, slots = asyncio.run(paced.paced_flood(here.on, paced.PACE))
    bare, _ = asyncio.run(paced.paced_flood(here.on, None))
    here.figures |= (
        idle_ | here.spread("pick-up in the paced flood", waits) | here.spread("pick-up, flood without a pace", bare)
    )
    used, wrong = paced.judged(slots)
    here.figures |= {"slots used in 10 s": float(used), "slots unlike the oracle": float(wrong)}
    p99 = "pick-up in the paced flood p99 ms", "pick-up across processes, idle p99 ms"
    here.figures["paced flood p99 beyond idle, ms"] = here.figures[p99[0]] - here.figures[p99[1]]


def scheduled(here: Round) -> None:
    rate, steady = asyncio.run(schedules.steady(here.on, here.share))
    took, together = asyncio.run(schedules.together(here.on, here.share))
    runs, single = asyncio.run(schedules.one_by_one(here.on))
    here.figures |= {
        "steady fire times per second": rate,
        "steady fire times / asked": rate / (schedules.STEADY * here.share),
    }
    here.figures |= _spread("steady fire time to job", [added - due for due, added in steady.waits])
    here.figures |= {"fire times at one instant": float(len(together.waits)), "all jobs of one instant, s": took}
    every = (single, steady, together)
    here.figures["fire times with two jobs"] = float(sum(fired.doubled for fired in every))
    here.figures["fire times without a job"] = float(sum(fired.lost for fired in every))
    here.figures["fired early"] = float(sum(added < due for fired in every for due, added in fired.waits))
    here.figures |= here.spread("fire time to job", single.waits) | here.spread("fire time to handler", runs)


def served(here: Round) -> None:
    here.figures |= asyncio.run(http.measure(here.on))


def remote_workers(here: Round) -> None:
    here.figures |= asyncio.run(remote.measure(here.on, here.jobs))


def flooded_beside_huey(here: Round) -> None:
    flooded(here)
    here.figures |= _spread(f"huey pick-up in a flood of {HUEY_JOBS:,}", huey.flood(HUEY_JOBS))


def million_delayed(here: Round) -> None:
    here.figures |= asyncio.run(million.million(MILLION))


def laden_claim(here: Round) -> None:
    here.figures |= asyncio.run(laden.laden(here.on, here.share))


def open_dashboard(here: Round) -> None:
    here.figures |= asyncio.run(dashboard.measure(here.on, int(dashboard.JOBS * here.share)))


def beside_strangers(here: Round) -> None:
    here.figures |= asyncio.run(strangers.strangers(here.on, here.share))
    here.figures |= asyncio.run(strangers.cost(here.on, here.jobs))


def idle(here: Round) -> None:
    here.figures["idle worker, % of a core"] = 100 * asyncio.run(cases.idle_share(here.on, 20))


def crowded(here: Round) -> None:
    two = asyncio.run(crowd.crowd(here.on, 3200, 1))
    here.figures |= {"2 processes on one file": two, "32 processes on one file": asyncio.run(crowd.crowd(here.on, 3200, 16))}
    here.figures["32 processes / 2"] = here.figures["32 processes on one file"] / two


def counts(here: Round) -> None:
    here.figures |= asyncio.run(cases.counts(here.on, 5000))


def refill(here: Round) -> None:
    jobs = int(REFILLED * here.share)
    here.figures[f"{jobs:,} due jobs back in line, s"] = asyncio.run(lines.refill(_lined(here), jobs))


def redis_memory(here: Round) -> None:
    here.figures |= asyncio.run(lines.memory(_lined(here), int(MILLION * here.share)))


def redis_away(here: Round) -> None:
    here.figures |= asyncio.run(lines.away(_lined(here), 60 * here.share))


def line_worth(here: Round) -> None:
    here.figures |= asyncio.run(worth.worth(_lined(here), here.jobs, 30))


def _lined(here: Round) -> LinedServers:
    assert isinstance(here.on, LinedServers)
    return here.on


class Case(NamedTuple):
    title: str
    measure: Callable[[Round], None]
    rounds: int = 2**31  # at most


_ANYWHERE = {
    "a": Case("enqueue one by one", enqueue),
    "a2": Case("enqueue one by one from many tasks", enqueue_from_tasks),
    "b": Case("enqueue in batches", enqueue_many),
    "c": Case("drain with one worker", drain),
    "c2": Case("drain with two workers", drain_two),
    "d": Case("pick-up and idleness", pick_up, 5),
    "e": Case("lateness", lateness, 5),
    "f": Case("real-time jobs in a flood", flooded, 2),
    "p": Case("real-time jobs in a paced flood", paced_flood, 5),
    "k": Case("schedules", scheduled, 3),
    "s": Case("what statistics cost", statistics_cost, 3),
    "l": Case("lists of five million jobs", listed, 1),
    "t": Case("what the indexes for lists cost", cost_of_lists, 3),
    "w": Case("the HTTP service", served, 5),
    "x": Case("remote workers", remote_workers, 3),
    "y": Case("claims and counts beside other types and many queue names", beside_strangers, 1),
    "z": Case("the dashboard", open_dashboard, 1),
}
_COUNTS = Case("what a job takes of the database", counts, 1)
CASES = {
    "sqlite": _ANYWHERE
    | {
        "c": Case("drain with one worker", drain_beside_huey),
        "f": Case("real-time jobs in a flood", flooded_beside_huey, 2),
        "g": Case("a million delayed jobs", million_delayed, 1),
        "h": Case("an idle worker's share of a core", idle, 1),
        "i": Case("32 processes on one file", crowded, 2),
        "n": _COUNTS,
    },
    "lined file": _ANYWHERE,
    "postgres": _ANYWHERE
    | {
        "c": Case("drain with one worker", drain_beside_procrastinate),
        "h": Case("an idle worker's share of a core", idle, 1),
        "j": Case("a claim from a laden table", laden_claim, 1),
        "n": _COUNTS,
    },
    "line": _ANYWHERE
    | {
        "c": Case("drain with one worker", drain_beside_redis),
        "h": Case("an idle worker's share of a core", idle, 1),
        "n": _COUNTS,
        "o": Case("Redis away", redis_away, 1),
        "r": Case("a line that was emptied", refill, 3),
        "m": Case("Redis's memory", redis_memory, 1),
        "v": Case("what the line buys", line_worth, 1),
    },
}


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"{name} p50 ms": 1000 * ordered[len(ordered) // 2], f"{name} p99 ms": 1000 * ordered[len(ordered) * 99 // 100]}
