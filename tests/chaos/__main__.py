"""`python -m tests.chaos --minutes 2`: real faults on real processes; `--kills 1000 --zombies 300` goes on until so many;
`--database postgres --restarts 50 --cuts 1000` does it to a PostgreSQL of its own, `--database postgres+line --flushes 100`
to the Valkey beside it; `--kills 50 --schedulers 50` does it to four workers and four schedulers.

Faults and load are drawn with a seed, which is printed; when things happen is the machine's to say, so a seed repeats the
mix and not the run. What is found is kept in the folder that is named.
"""

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos import remote, schedules, webhooks
from tests.chaos.campaign import KINDS, Campaign, Plan
from tests.chaos.judging import RELEASES, Result
from tests.chaos.lines import LINED_UP

COUNTED = ("acknowledged", "lost", "doubled", "stuck", "early", "stale accepted", "other")
BESIDES = (
    "calls without an answer",
    "runs",
    "lapses",
    RELEASES,
    "stale refused",
    "handlers that finished a job twice",
    LINED_UP,
)
MOST = 5  # violations told in full


def main(arguments: Sequence[str] | None = None) -> int:
    plan, folder = _plan(arguments), Path(tempfile.mkdtemp(prefix="demora-chaos-"))
    if isinstance(plan, Deliver):
        print(f"seed {plan.seed}, in {folder}", flush=True)
        code = webhooks.main(plan.jobs, plan.database, folder, plan.seed)
        if not code:
            shutil.rmtree(folder)
        return code
    if isinstance(plan, Fire):
        print(f"seed {plan.seed}, in {folder}", flush=True)
        code = (remote if plan.remote else schedules).main(plan.minutes, plan.database, folder, plan.seed)
        if not code:
            shutil.rmtree(folder)
        return code
    print(f"seed {plan.seed}, in {folder}", flush=True)
    began, campaign = time.monotonic(), Campaign(plan, folder)
    asyncio.run(_interruptible(campaign))
    _tell(campaign, time.monotonic() - began)
    if campaign.result.violations:
        return 1
    shutil.rmtree(folder)
    return 1 if campaign.never else 0


class Deliver(NamedTuple):
    """What `--webhooks` asks for, in place of a plan."""

    jobs: int
    database: str
    seed: int


class Fire(NamedTuple):
    """What `--schedule-minutes` or `--remote-minutes` asks for, in place of a plan."""

    minutes: float
    database: str
    seed: int
    remote: bool = False


def _plan(arguments: Sequence[str] | None) -> Plan | Deliver | Fire:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--database", choices=KINDS, default="sqlite")
    parser.add_argument("--kills", type=int, default=0, help="only what is counted, until so many workers died in mid-job")
    parser.add_argument("--schedulers", type=int, default=0, help="only what is counted, until so many schedulers died")
    parser.add_argument("--zombies", type=int, default=0, help="only what is counted, until so many were overtaken")
    parser.add_argument("--restarts", type=int, default=0, help="only what is counted, until so many restarts of the server")
    parser.add_argument("--cuts", type=int, default=0, help="only what is counted, until so many sent COMMITs were cut")
    parser.add_argument("--flushes", type=int, default=0, help="only what is counted, until so many losses of the line")
    parser.add_argument("--groups", type=int, help="worlds side by side")
    parser.add_argument("--only", default="", help="kinds of faults, by the beginnings of their names: kill,crash,clock")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--webhooks", type=int, default=0, help="instead of all that: so many jobs with webhooks")
    parser.add_argument("--schedule-minutes", type=float, default=0, help="instead of all that: schedules that fire so long")
    parser.add_argument("--remote-minutes", type=float, default=0, help="instead of all that: remote workers for so long")
    args = parser.parse_args(arguments)
    if args.remote_minutes:
        return Fire(args.remote_minutes, args.database, args.seed, remote=True)
    if args.schedule_minutes:
        return Fire(args.schedule_minutes, args.database, args.seed)
    if args.webhooks:
        return Deliver(args.webhooks, args.database, args.seed)
    if "postgres" not in args.database and (args.restarts or args.cuts):
        parser.error("--restarts and --cuts are done to a server: --database postgres")
    if "line" not in args.database and args.flushes:
        parser.error("--flushes are done to a line: --database postgres+line")
    groups = args.groups or (4 if args.database == "sqlite" and (args.kills or args.zombies) else 2)
    only = tuple(filter(None, args.only.split(",")))
    goals = {"kills": args.kills, "zombies": args.zombies, "restarts": args.restarts, "cuts": args.cuts}
    goals |= {"flushes": args.flushes, "schedulers": args.schedulers}
    return Plan(args.seed, args.minutes * 60, groups=groups, only=only, database=args.database, **goals)


async def _interruptible(campaign: Campaign) -> None:
    """SIGTERM and Ctrl-C end it in good order: processes killed, disks unmounted."""
    running = asyncio.ensure_future(campaign.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    progress = asyncio.ensure_future(_progress(campaign))
    try:
        await running
    finally:
        progress.cancel()


async def _progress(campaign: Campaign) -> None:
    while True:
        await asyncio.sleep(20)
        counted = dict.fromkeys(name for name, _ in campaign.plan.goals.values())
        goals = [f"{campaign.total(name)} × {name.rstrip(': ')}, " for name in counted]
        print(f"  … {''.join(goals)}{len(campaign.result.violations)} violations", file=sys.stderr, flush=True)


def _tell(campaign: Campaign, seconds: float) -> None:
    result = campaign.result
    _table("faults", sorted(result.fired.items()))
    for name, why in campaign.skipped.items():
        print(f"    skipped  {name}: {why}")
    for name in campaign.never:
        print(f"      never  {name}")
    _table("jobs", [(name, result.counts[name]) for name in COUNTED])
    _table("besides", [(name, result.counts[name]) for name in BESIDES])
    print(f"\nrecovery, from a kill to the settlement of what lapsed: {_recovery(result)}")
    for violation in result.violations[:MOST]:
        print(f"\n{violation}")
    print(f"\n{sum(result.fired.values()):,} faults in {seconds:.0f} s: {len(result.violations)} violations", flush=True)


def _recovery(result: Result) -> str:
    times = sorted(result.recoveries)
    if not times:
        return "none"
    return f"p50 {times[len(times) // 2]} ms, p100 {times[-1]} ms, {len(times)} leases"


def _table(title: str, rows: Sequence[tuple[str, int]]) -> None:
    print(f"\n{title}")
    for name, number in rows:
        print(f"  {number:>9,}  {name}")


if __name__ == "__main__":
    sys.exit(main())
