"""The verdicts on generated bugs, in a file that stays between runs: a line for each, in the order of their names.

A verdict holds for a change and for the text of the function or statement around it. When that text changes, the verdict is
dropped, and the change is tried again.
"""

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "verdicts.txt"


class Verdict(NamedTuple):
    """What became of one bug: caught, survived, or undecided when its time was up. `by` is the test file that caught it, or
    the place of a bug that was not caught."""

    name: str
    around: str
    verdict: str
    by: str


def read(path: Path) -> dict[str, Verdict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {verdict.name: verdict for verdict in (Verdict(*line.split(" ", 3)) for line in lines)}


def write(path: Path, verdicts: dict[str, Verdict]) -> None:
    path.write_text("".join(f"{' '.join(verdict)}\n" for _, verdict in sorted(verdicts.items())))


def note(path: Path, verdict: Verdict) -> None:
    """Add a verdict at the end at once: a run may be stopped at any time."""
    with path.open("a") as file:
        file.write(f"{' '.join(verdict)}\n")
