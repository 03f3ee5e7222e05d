"""`python -m tests.sim --seeds 1000 --jobs 200`: a campaign of simulations; `--seed N --jobs M` replays one."""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim import lined, rare, remote, schedules
from tests.sim.lined import EXPECTED as LINE_EXPECTED
from tests.sim.run import Result, simulate
from tests.sim.slots import FAULTS


def main() -> int:
    args = _arguments()
    _be_quiet()
    return _replay(args) if args.seed is not None else _campaign(args)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one, and print its trace")
    parser.add_argument("--seeds", type=int, default=100, help="how many to live through")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=200, help="jobs in each")
    parser.add_argument("--line", action="store_true", help="with a line before every store, which has faults of its own")
    parser.add_argument("--remote", action="store_true", help="with workers over a wire to a service; both fail")
    parser.add_argument("--calm", action="store_true", help="with a line, and no faults: no safety net may have to act")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="do not ask that every fault and rare situation occurs")
    parser.add_argument("--first-bad", action="store_true", help="stop at the first seed with a violation")
    return parser.parse_args()


def _be_quiet() -> None:
    """Killed processes leave coroutines behind that complain when they are collected."""
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None


def _replay(args: argparse.Namespace) -> int:
    result = _simulate(args)(args.seed, args.jobs)
    for violation in result.violations:
        print(violation)
    print(f"{result.jobs} jobs, {result.steps} steps, {sum(result.fired.values())} faults")
    print(f"trace {result.trace}")
    return 1 if result.violations else 0


def _campaign(args: argparse.Namespace) -> int:
    began = time.monotonic()
    fired: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    bad: list[Result] = []
    rescued = compared = gaps = 0
    for result in _results(args):
        fired.update(result.fired)
        reached.update(result.reached)
        rescued, compared, gaps = rescued + result.rescued, compared + result.compared, gaps + result.gaps
        if result.violations:
            bad.append(result)
            _explain(result, args)
            if args.first_bad:
                return 1
    _table("faults", fired)
    _table("rare situations, in seeds", Counter({name: reached[name] for name in SOMETIMES}))
    never = [] if args.small else [name for name in SOMETIMES if not reached[name]] + _missing(fired, lined=args.line)
    never += [name for name in remote.EXPECTED if args.remote and not args.small and name not in fired]
    for name in never:
        print(f"never happened: {name}")
    seconds = time.monotonic() - began
    jobs = args.seeds * args.jobs
    rate = f"{jobs / seconds:,.0f} jobs/s"
    if args.line or args.calm:
        print(f"\n{rescued} jobs that a safety net of the line had to find")
    print(f"{compared} statistics compared with an oracle, {gaps} of them of queues that held jobs")
    print(f"{args.seeds} seeds, {jobs:,} jobs in {seconds:.0f} s ({rate}): {len(bad)} seeds with violations")
    return 1 if bad or never else 0


def _results(args: argparse.Namespace) -> Iterable[Result]:
    from rich.progress import track

    seeds = range(args.first, args.first + args.seeds)
    if args.processes == 1:
        yield from (_simulate(args)(seed, args.jobs) for seed in seeds)
        return
    with ProcessPoolExecutor(args.processes, initializer=_be_quiet) as pool:
        found = pool.map(partial(_simulate(args), jobs=args.jobs), seeds, chunksize=4)
        yield from track(found, total=len(seeds), description="seeds", disable=not sys.stdout.isatty())


EXPECTED = ("worker killed", "worker stopped", "worker continued", "worker restarted", "worker killed by its handler")
EXPECTED += ("clock stepped", "notification lost", "queue paused", *FAULTS)
VERBS = ("add", "claim", "renew", "lease_status", "settle", "cancel", "retry", "change", "heartbeat", "due", "fire")
SOMETIMES = (*rare.SOMETIMES, *schedules.SOMETIMES)
WAYS = ("late", "busy", "failed before", "failed after")


def _simulate(args: argparse.Namespace) -> Callable[[int, int], Result]:
    if args.remote:
        return remote.simulate
    return lined.simulate_calmly if args.calm else lined.simulate if args.line else simulate


def _missing(fired: Counter[str], *, lined: bool) -> list[str]:
    from demora.system.crash import POINTS

    others = ("client.", "schema.") if lined else ("client.", "schema.", "line.")
    crashes = {f"crash at {point}" for point in POINTS if not point.startswith(others)}
    wanted = {*EXPECTED, *(LINE_EXPECTED if lined else ()), *crashes, *(f"{verb} {way}" for verb in VERBS for way in WAYS)}
    return sorted(wanted - set(fired))


def _explain(result: Result, args: argparse.Namespace) -> None:
    print(f"seed {result.seed}: {len(result.violations)} violations, the first of them:")
    print(result.violations[0])
    way = " --remote" if args.remote else " --calm" if args.calm else " --line" if args.line else ""
    print(f"replay: python -m tests.sim --seed {result.seed} --jobs {args.jobs}{way}\n")


def _table(title: str, counted: Counter[str]) -> None:
    print(f"\n{title}")
    for name, number in sorted(counted.items()):
        print(f"  {number:>9,}  {name}")


if __name__ == "__main__":
    sys.exit(main())
