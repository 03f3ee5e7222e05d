"""`make bench ARGS=--rivals`: demora beside other queues, each with its own worker, on the same disk and servers.

    python -m bench --rivals [--rounds 3] [--jobs 5000] [--only huey,saq] [--write docs/explanation/comparison.md]

Each contestant drains a full queue with one worker process, from the first handler to the last, and then runs jobs that are
due at random over some seconds. Rivals are installed for the run and removed after it; one that cannot be installed or does
not finish is named and left out. `--write` puts the table between the marks in a page.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from bench.databases import PostgresServer
from bench.rivals.contestants import CONTESTANTS, FILE, POSTGRES, REDIS, Contestant
from bench.rivals.installed import Installed, NotInstalled
from bench.rivals.notes import FILE as NOTES
from bench.rivals.notes import JOBS
from tests.servers import postgres, valkey

LATE, SECONDS = 500, 5.0  # delayed jobs, and the time over which they are due
PATIENCE = 300.0  # seconds in which a contestant has to finish
STOP = 10.0  # seconds that a worker has to end
START = 5.0  # seconds that a worker has to start, before delayed jobs are enqueued
BEGIN, END = "<!-- rivals: made by `make bench` -->", "<!-- rivals: end -->"


class DidNotFinish(Exception):
    """A contestant failed, or did not run all jobs in time."""


class Servers(NamedTuple):
    databases: PostgresServer
    redis: valkey.Server


class Result(NamedTuple):
    """Of one contestant: jobs per second, and the middle and the 99th percentile of lateness in milliseconds."""

    rate: float
    p50: float
    p99: float


def main(rounds: int, jobs: int, only: str | None, page: Path | None) -> None:
    """Let all run, show the table, and write it to a page if one is given. Exits with the names of those left out."""
    chosen = [
        one for one in CONTESTANTS if only is None or any(word.lower() in one.name.lower() for word in only.split(","))
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres.running() as server,
        valkey.running() as redis,
    ):
        contest = _Contest(Installed(Path(folder)), Servers(PostgresServer(server.url), redis), jobs)
        contest.run(chosen, rounds)
    made = table(contest.medians(), contest.versions)
    print(made)
    if page is not None:
        page.write_text(written(page.read_text(), made))
    sys.exit("\n".join(f"{name}: left out: {why}" for name, why in contest.left_out.items()) or None)


def table(results: Mapping[Contestant, Result], versions: Mapping[Contestant, str]) -> str:
    """Return the results in Markdown, the fastest first."""
    lines = ["| queue | jobs are in | drained a second | late, p50 and p99 | set |", "|---|---|---|---|---|"]
    for one, found in sorted(results.items(), key=lambda item: -item[1].rate):
        name = f"{one.name} ({versions[one]})" if one in versions else f"**{one.name}**"
        late = f"{_milliseconds(found.p50)} and {_milliseconds(found.p99)}"
        lines.append(f"| {name} | {one.keeps_in} | {_rounded(found.rate):,} | {late} | {one.setting} |")
    return "\n".join(lines)


def written(page: str, table: str) -> str:
    """Return a page with the table between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} before {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


class _Contest:
    def __init__(self, installed: Installed, servers: Servers, jobs: int) -> None:
        self._installed, self._servers, self._jobs = installed, servers, jobs
        self._found: dict[Contestant, list[Result]] = defaultdict(list)
        self.versions: dict[Contestant, str] = {}
        self.left_out: dict[str, str] = {}

    def run(self, chosen: Sequence[Contestant], rounds: int) -> None:
        """Run each once in every round, in turn; one that fails takes no further part."""
        starts = {one: start for one in chosen if (start := self._start(one)) is not None}
        for number in range(1, rounds + 1):
            for one, start in starts.items():
                if one.name not in self.left_out:
                    print(f"{time.strftime('%X')} round {number} of {rounds}: {one.name}", file=sys.stderr)
                    self._try(one, start)

    def medians(self) -> dict[Contestant, Result]:
        kept = {one: found for one, found in self._found.items() if one.name not in self.left_out}
        return {one: Result(*map(statistics.median, zip(*found, strict=True))) for one, found in kept.items()}

    def _start(self, one: Contestant) -> list[str] | None:
        """Install a contestant, and return how to start what belongs to it."""
        if not one.packages:
            return [sys.executable, "-m"]
        print(f"{time.strftime('%X')} installing {' '.join(one.packages)}", file=sys.stderr)
        try:
            start = self._installed.python(*one.packages) if one.module else self._installed.node(*one.packages)
            self.versions[one] = self._installed.version(one.packages[0])
        except NotInstalled as problem:
            self.left_out[one.name] = f"cannot be installed: {problem}"
            return None
        return start

    def _try(self, one: Contestant, start: list[str]) -> None:
        try:
            rate = asyncio.run(_drain(one, start, self._servers, self._jobs))
            waits = asyncio.run(_late(one, start, self._servers))
        except DidNotFinish as problem:
            self.left_out[one.name] = str(problem)
        else:
            late = sorted(1000 * (ran - due) for due, ran in waits)
            self._found[one].append(Result(rate, late[len(late) // 2], late[len(late) * 99 // 100]))


async def _drain(one: Contestant, start: list[str], servers: Servers, jobs: int) -> float:
    """Jobs per second, from the first handler to the last, of a queue that is full when the worker starts."""
    async with _place(one, servers, jobs) as place:
        _prepare(one, start, place)
        _send(one, start, place, "drain", str(jobs))
        with _worker(one, start, place) as notes:
            first, last = notes()
    return (jobs - 1) / (last - first)


async def _late(one: Contestant, start: list[str], servers: Servers) -> list[tuple[float, float]]:
    """Of each delayed job when it was due and when its handler ran."""
    async with _place(one, servers, LATE) as place:
        _prepare(one, start, place)
        with _worker(one, start, place) as notes:
            await asyncio.sleep(START)
            _send(one, start, place, "late", str(LATE), str(SECONDS))
            return [(due, ran) for due, ran in notes()]


@asynccontextmanager
async def _place(one: Contestant, servers: Servers, jobs: int) -> AsyncIterator[dict[str, str]]:
    """An empty store for a contestant, as the environment in which all that belongs to it runs."""
    servers.redis.ask("FLUSHALL")
    with tempfile.TemporaryDirectory() as folder:
        base = os.environ | {NOTES: str(Path(folder) / "notes.json"), JOBS: str(jobs), "PYTHONPATH": _path()}
        if one.keeps_in == FILE:
            file = Path(folder) / "bench.db"
            yield base | {"DEMORA_BENCH_PLACE": str(file), "DEMORA_DATABASE_URL": f"sqlite:///{file}"}
        elif one.keeps_in == REDIS:
            yield base | {"DEMORA_BENCH_PLACE": servers.redis.url}
        else:
            line = {} if one.keeps_in == POSTGRES else {"DEMORA_REDIS_URL": servers.redis.url}
            async with servers.databases.new() as url:
                yield base | line | {"DEMORA_BENCH_PLACE": url, "DEMORA_DATABASE_URL": url}


def _path() -> str:
    """This folder's root first, so that every Python finds `bench`."""
    root = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))


def _prepare(one: Contestant, start: list[str], place: dict[str, str]) -> None:
    if one.prepare:
        _run([*start, *_filled(one.prepare, place)], place)


def _send(one: Contestant, start: list[str], place: dict[str, str], *words: str) -> None:
    module = () if one.module is None else ("bench.rivals.sending", one.module)
    _run([*start, *module, *words], place)


def _run(command: list[str], place: dict[str, str]) -> None:
    ended = subprocess.run(command, env=place, capture_output=True, text=True)
    if ended.returncode:
        raise DidNotFinish(f"{' '.join(command[1:4])} failed: " + _gist(ended.stderr))


@contextmanager
def _worker(one: Contestant, start: list[str], place: dict[str, str]) -> Iterator[Callable[[], Any]]:
    """The worker of a contestant, at work; yields what waits for its notes. Its process group is ended with it."""
    with tempfile.TemporaryFile("w+") as said:
        command = [*start, *_filled(one.worker, place)]
        process = subprocess.Popen(command, env=place, stdout=said, stderr=said, text=True, start_new_session=True)
        try:
            yield lambda: _notes(process, Path(place[NOTES]), said)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _notes(worker: subprocess.Popen[str], file: Path, said: IO[str]) -> Any:
    """What the handlers noted, once all have run."""
    until = time.monotonic() + PATIENCE
    while not file.exists():
        if worker.poll() is not None or time.monotonic() > until:
            said.seek(0)
            raise DidNotFinish("its worker did not run all jobs; it said: " + _gist(said.read()))
        time.sleep(0.05)
    return json.loads(file.read_text())


def _gist(said: str) -> str:
    """The last line that names an error, or else the last line."""
    lines = said.strip().splitlines() or ["nothing"]
    return next((line.strip() for line in reversed(lines) if "Error" in line), lines[-1])


def _filled(words: Sequence[str], place: dict[str, str]) -> list[str]:
    return [word.format(place=place["DEMORA_BENCH_PLACE"]) for word in words]


def _rounded(rate: float) -> int:
    """Three digits: more would be noise."""
    return round(float(f"{rate:.3g}"))


def _milliseconds(value: float) -> str:
    return f"{value / 1000:.2g} s" if value >= 995 else f"{float(f'{value:.2g}'):g} ms"
