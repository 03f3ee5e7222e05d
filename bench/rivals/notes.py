"""What the handlers of every contestant note, whatever runs them: needs the standard library alone.

A worker is one process, told by the environment how many jobs to expect. When all have run, it writes one JSON file: the
times at which the first and the last handler ran, or of each delayed job when it was due and when it ran.
"""

import itertools
import json
import os
import time
from pathlib import Path

JOBS, FILE = "DEMORA_BENCH_JOBS", "DEMORA_BENCH_NOTES"

_expected, _file = int(os.environ.get(JOBS, "0")), Path(os.environ.get(FILE, "notes.json"))
_numbers = itertools.count(1)  # handlers may run in several threads
_times: list[float] = []
_waits: list[tuple[float, float]] = []


def ran() -> None:
    """Note that a job ran; of all but the first and the last only the number."""
    number = next(_numbers)
    if number in (1, _expected):
        _times.append(time.time())
        if len(_times) == 2:
            _write(_times)


def ran_late(due: float) -> None:
    """Note that a delayed job ran."""
    _waits.append((due, time.time()))
    if len(_waits) == _expected:
        _write(_waits)


def _write(noted: object) -> None:
    """Write the file at once, as one that is complete."""
    made = _file.with_suffix(".part")
    made.write_text(json.dumps(noted))
    made.rename(_file)
