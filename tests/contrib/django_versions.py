"""`make django`: runs the suite of Django on several versions of Django, two at a time, each on SQLite and on PostgreSQL.

An environment under build/ has what the suite needs, one for each CPython; this one serves for the CPython it has. Each
version of Django is in a folder of its own, which goes before the environment. Django 6 needs CPython 3.12 or later. Where
none starts, its versions are left out, and the last line says so; with CI=true that is a failure.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.contrib.test_django import new_database, run_suite
from tests.servers import postgres

PROJECT = Path(__file__).parents[2]
REQUIREMENTS, BUILD = PROJECT / "requirements", PROJECT / "build" / "django"
VERSIONS = {"4.2": (3, 11), "5.2": (3, 11), "6.0": (3, 12), "6.1": (3, 12)}  # with the least CPython of each
WITHOUT = {"6.1": "django_tasks"}  # the others also have the package, which 4.2 and 5.2 need
NEWEST_PYTHON = 14
TO_INSTALL = (
    "Django 6 needs a CPython 3.12 or later that starts, with ssl and sqlite3: put python3.12, python3.13 or python3.14 on "
    "the PATH, for instance with `apt-get install python3-venv` on Debian 13, or with `pyenv install 3.12` on Debian 12, "
    "whose own is 3.11"
)


class Run(NamedTuple):
    """One run of the suite."""

    version: str
    database: str
    python: str

    def __str__(self) -> str:
        return f"Django {self.version} on {self.database}"


def main(wanted: Sequence[str]) -> int:
    """Run the suite on these versions. Returns the exit code."""
    pythons = {version: find_python(VERSIONS[version]) for version in wanted or VERSIONS}
    left_out = [version for version, python in pythons.items() if python is None]
    found = {version: make_environment(python) for version, python in pythons.items() if python is not None}
    runs = [Run(version, database, python) for version, python in found.items() for database in ("sqlite", "postgres")]
    for version, python in found.items():
        add_django(version, python)
    with postgres.running() as server, ThreadPoolExecutor(2) as two:
        failed = [
            run for run, passed in zip(runs, two.map(lambda run: _passes(run, server.url), runs), strict=True) if not passed
        ]
    print("failed:", ", ".join(map(str, failed)) or "none")
    if left_out:
        print(f"left out: Django {' and '.join(left_out)}. {TO_INSTALL}")
    return 1 if failed or (left_out and os.environ.get("CI") == "true") else 0


def find_python(least: tuple[int, int]) -> str | None:
    """Return a CPython of at least this version that starts: this one, or the oldest one; None if there is none."""
    asked = "import sys, ssl, sqlite3, venv; sys.exit(sys.version_info < tuple(map(int, sys.argv[1:])))"
    for python in _pythons(least):
        command = [python, "-c", asked, *map(str, least)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return python
    return None


def _pythons(least: tuple[int, int]) -> Iterator[str]:
    if sys.version_info >= least:
        yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(least[1], NEWEST_PYTHON + 1):
        yield from filter(None, [shutil.which(f"python3.{minor}"), shutil.which(f"python3.{minor}", path="/usr/bin")])
        yield from map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python")))
    yield from filter(None, [shutil.which("python3"), shutil.which("python3", path="/usr/bin")])


def make_environment(python: str) -> str:
    """Return the interpreter of an environment with what the suite needs: this one, or one with the pinned requirements."""
    if python == sys.executable:
        return python
    pinned = [REQUIREMENTS / "run.txt", REQUIREMENTS / "django.txt"]
    asked = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    version = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    folder = BUILD / f"python-{version}"
    own = str(folder / "bin" / "python")
    if not _is_made(folder, pinned):
        print(f"making an environment with CPython {version}", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        _install(own, *(word for file in pinned for word in ("-r", str(file))), "--require-hashes", "--no-deps")
        _install(own, "--no-build-isolation", "--no-deps", "--editable", str(PROJECT))
        _note_made(folder, pinned)
    return own


def add_django(version: str, python: str) -> None:
    """Install this version of Django into its folder."""
    folder, pinned = BUILD / version, [REQUIREMENTS / f"django-{version}.txt"]
    if not _is_made(folder, pinned):
        shutil.rmtree(folder, ignore_errors=True)
        _install(python, "--require-hashes", "--no-deps", "--target", str(folder), "-r", str(pinned[0]))
        _note_made(folder, pinned)


def _install(python: str, *words: str) -> None:
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *words], check=True)


def _is_made(folder: Path, pinned: Sequence[Path]) -> bool:
    """Whether a folder was made from these requirements as they are now."""
    noted = folder / "made-from"
    return noted.exists() and noted.read_text() == "".join(file.read_text() for file in pinned)


def _note_made(folder: Path, pinned: Sequence[Path]) -> None:
    (folder / "made-from").write_text("".join(file.read_text() for file in pinned))


def _passes(run: Run, server: str) -> bool:
    folder = BUILD / f"run-{run.version}-{run.database}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    url = new_database(server, f"django_{run.version}") if run.database == "postgres" else None
    began = time.monotonic()
    ended = run_suite(run.python, folder, url, path=str(BUILD / run.version), without=WITHOUT.get(run.version, ""))
    passed = ended.returncode == 0
    said = ended.stdout.splitlines()[-1:] if passed else [ended.stdout[-5000:], ended.stderr[-2000:]]
    print(f"{run}, in {time.monotonic() - began:.0f} s:", *said, flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
