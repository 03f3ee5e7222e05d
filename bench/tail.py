"""Says what late jobs waited for: `python -m bench.tail --minutes 10`.

Repeats case (e), jobs due at random over ten seconds, and looks at each job that started more than 20 ms late. It names what
covers most of that wait: a core that the host took away, the disk (a durable write beside the database took as long), a
garbage collection of the worker, its event loop (busy with something else), a claim or a settlement that took long for
another reason, or nothing that was recorded.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from bench import cases
from bench.databases import SqliteFiles
from bench.recorded import KINDS, NOTES, Span, read_notes
from bench.stage import Wait
from tests.stalls import covered, watching

JOBS, SECONDS = 1000, 10.0
LATE = 0.020  # seconds
MOST_OF_IT = 0.5  # of a wait that a cause must cover to explain it
PROBE_EVERY = 0.02  # seconds between two durable writes of the probe
SLOW_WRITE = 0.010  # seconds
UNEXPLAINED = "nothing that was recorded"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tail", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    until = time.monotonic() + 60 * parser.parse_args().minutes
    total: Counter[str] = Counter()
    while time.monotonic() < until:
        waits, causes = _round()
        late = [wait for wait in waits if wait[1] - wait[0] > LATE]
        found = Counter(_cause(wait, causes) for wait in late)
        total += found
        print(f"{time.strftime('%X')} {_spread(waits)}; {len(late)} late: {_listed(found)}", flush=True)
    print(f"all late jobs: {_listed(total)}")


def _round() -> tuple[list[Wait], dict[str, list[Span]]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ[NOTES] = str(folder / "notes")
        with watching(folder) as stalls, _probing(folder / "probe", folder / "writes"):
            waits = asyncio.run(cases.lateness(SqliteFiles(), JOBS, SECONDS, handlers="bench.recorded:app"))
            cores = asyncio.run(stalls.until(max(end for _, end in waits)))
        notes = read_notes(folder / "notes")
        return waits, {"a core": cores, "the disk": read_notes(folder / "writes")["write"]} | {
            name: notes[name] for name in KINDS
        }


@contextmanager
def _probing(file: Path, notes: Path) -> Iterator[None]:
    ended = multiprocessing.get_context("spawn").Event()
    probe = multiprocessing.get_context("spawn").Process(target=_probe, args=(file, notes, ended), daemon=True)
    probe.start()
    try:
        yield
    finally:
        ended.set()
        probe.join()


def _probe(file: Path, notes: Path, ended: Event) -> None:
    """Write durably again and again, and note each write that took long."""
    with file.open("wb", buffering=0) as probed, notes.open("w") as noted:
        while not ended.wait(PROBE_EVERY):
            began = time.time()
            probed.write(b"x" * 4096)
            os.fsync(probed.fileno())
            if time.time() - began > SLOW_WRITE:
                noted.write(f"write {began} {time.time()}\n")


def _cause(wait: Wait, causes: dict[str, list[Span]]) -> str:
    """Return the first cause that covers most of the wait. The machine comes first: it also makes the rest take long."""
    begin, end = wait
    enough = MOST_OF_IT * (end - begin)
    return next((name for name, spans in causes.items() if covered(spans, begin, end) >= enough), UNEXPLAINED)


def _spread(waits: list[Wait]) -> str:
    late = sorted(1000 * (end - begin) for begin, end in waits)
    p99 = late[int(0.99 * len(late))]
    return f"lateness p50 {statistics.median(late):.1f} ms, p99 {p99:.1f}, longest {late[-1]:.1f}"


def _listed(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common()) or "none"


if __name__ == "__main__":
    main()
