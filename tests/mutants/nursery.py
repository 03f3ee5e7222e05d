"""Runs tests against changed copies of the source, many times over, at the price of a fork each.

A process loads pytest, its plugins, all other packages that tests import, and demora from a copy of the source, but not the
tests, and starts the servers. Each run is a fork of it, with a database of its own. The fork changes the functions in its
memory where it can, and imports demora again where it cannot. The copy is changed too: processes that a test starts read it.
The compiled tests, with the assertions that pytest has rewritten, stay in their folders.
"""

import compileall
import ctypes
import gc
import importlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants.grafts import Grafts, forget
from tests.servers import postgres, valkey

ROOT = Path(__file__).parents[2]
QUICK = "not timed and not campaign"  # a campaign would take the time of hundreds of tests
UNUSED = ("cacheprovider", "pytest_cov", "xdist", "xdist.looponfail", "schemathesis", "faker", "platformdirs", "django")
OPTIONS = ("-v", "-x", "--tb=line", "-o", "timeout=0", *(f"-pno:{plugin}" for plugin in UNUSED))
WARM_UP = ("tests/conformance/test_leased.py", "tests/core/test_backoff.py", "tests/line/test_loss.py", "tests/worker")
WARM_UP += ("tests/api/test_metrics.py", "tests/outbound/test_sender.py", "tests/remote/test_worker_protocol.py")
OURS = ("demora", "pytest_demora", "tests", "conftest", "test_", "__")
HUNG = 124
PR_SET_PDEATHSIG = 1
LOOK = 0.1  # seconds between two looks at a run
LONGEST_IDLE, LONGEST_TEST = 20.0, 60.0  # seconds that a test may stand still, and that it may compute


class TimeIsUp(Exception):
    """The tests computed for longer than they may."""


class Nursery:
    """A copy of the source, and the forks that run tests against it. `prepare` first."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        self._copy = Path(shutil.copytree(source, self._folder / "src"))
        compileall.compile_dir(self._copy, quiet=1)
        self._grafts = Grafts(self._copy, _ours)
        self._change: tuple[str, bytes, bytes] | None = None
        self._runs = self._changes = 0
        gc.collect()
        gc.freeze()  # else the collector of each fork writes to all that it shares
        self.left = math.inf  # seconds that runs may still compute

    @contextmanager
    def changed(self, file: str, text: bytes) -> Iterator[None]:
        """Change one file of the copy. Its age differs at each change, else the compiled form of another would be used."""
        path = self._copy / "demora" / file
        before, stat = path.read_bytes(), path.stat()
        self._changes += 1
        self._change = (file, before, text)
        path.write_bytes(text)
        os.utime(path, (stat.st_atime, stat.st_mtime + 5 * self._changes))
        try:
            yield
        finally:
            self._change = None
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Run a test that does not count for the limit."""
        left, self.left = self.left, LONGEST_TEST
        try:
            yield
        finally:
            self.left = left

    def failing(self, tests: Sequence[str], *, engine: str, marks: str = QUICK, names: str = "") -> str | None:
        """Run tests until one fails, and return its name and the reason; None if none fails. `TimeIsUp` at the limit."""
        self._runs += 1
        database = f"m{os.getpid()}_{self._runs}" if "postgres" in engine else "postgres"
        said = self._folder / "said"
        said.write_bytes(b"")
        with _database(database):
            pid = os.fork()
            if pid == 0:
                self._run([*OPTIONS, "-m", marks, "-k", names, *tests], said, engine, database)
            code, spent = _wait(pid, said, self.left)
            self.left -= spent
        return None if code in (0, pytest.ExitCode.NO_TESTS_COLLECTED) else _reason(said.read_text(errors="replace"), code)

    def _run(self, arguments: list[str], said: Path, engine: str, database: str) -> None:
        """The life of a fork. It ends without the exit handlers of its parent, which would stop the servers."""
        code = 70
        try:
            os.setsid()
            _end_with_parent()
            _hush(said)
            os.environ.update(PYTHONPATH=str(self._copy), DEMORA_TEST_ENGINE=engine)
            if self._change is not None and not self._grafts.apply(*self._change):
                forget()
            postgres.shared().database = database
            code = pytest.main(arguments)
            sys.stdout.flush()
        finally:
            os._exit(code)


def prepare() -> None:
    """Load what all runs need, and start the servers."""
    sys.dont_write_bytecode = False  # also where PYTHONDONTWRITEBYTECODE is set: runs share the compiled tests
    for module in _loaded_by_tests():
        if module.startswith("demora"):
            _ours.append(module)
        elif not module.startswith(OURS):
            with suppress(Exception):
                importlib.import_module(module)
    postgres.shared()
    valkey.shared()


_ours: list[str] = []  # the modules of demora that tests load


def _loaded_by_tests() -> list[str]:
    """The modules that a run of tests loads, asked of a fork."""
    with tempfile.NamedTemporaryFile("r") as noted:
        pid = os.fork()
        if pid == 0:
            _hush(Path(os.devnull))
            pytest.main([*OPTIONS, *WARM_UP, "--collect-only"])
            Path(noted.name).write_text(json.dumps(list(sys.modules)))
            os._exit(0)
        os.waitpid(pid, 0)
        modules: list[str] = json.load(noted)
    return modules


def _end_with_parent() -> None:
    """Have Linux end this process when its parent ends: a session of its own hears no Ctrl-C."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _hush(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _wait(pid: int, said: Path, limit: float) -> tuple[int, float]:
    """Wait for a fork, and return its exit code and how many seconds it computed. End all that it started, also after it
    ended. A test that hangs counts as one that fails: it stands still or computes for too long. The time that it waits for a
    processor does not count, so that the load of the machine does not matter."""
    shown, since, began = 0, Usage(0.0, 0.0), time.monotonic()
    while True:
        done, status, resources = os.wait4(pid, os.WNOHANG)
        if done:
            _end_group(pid)
            return os.waitstatus_to_exitcode(status), resources.ru_utime + resources.ru_stime
        used = _usage(pid, time.monotonic() - began)
        if said.stat().st_size != shown:  # a line for each test
            shown, since = said.stat().st_size, used
        hangs = used.idle - since.idle > LONGEST_IDLE or used.computed - since.computed > LONGEST_TEST
        if hangs or used.computed > limit:
            break
        time.sleep(LOOK)
    _end_group(pid)
    os.waitpid(pid, 0)
    if not hangs:
        raise TimeIsUp
    return HUNG, used.computed


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class Usage(NamedTuple):
    """How many seconds a process computed, and how many it stood still."""

    computed: float
    idle: float


def _usage(pid: int, age: float) -> Usage:
    computed = waited = 0
    threads = Path(f"/proc/{pid}/task")
    if not threads.exists():  # not on Linux: its age must do
        return Usage(age, 0.0)
    for thread in threads.iterdir():
        with suppress(OSError):
            ran, queued, _ = (thread / "schedstat").read_text().split()
            computed, waited = computed + int(ran), waited + int(queued)
    return Usage(computed / 1e9, max(age - (computed + waited) / 1e9, 0))


@contextmanager
def _database(name: str) -> Iterator[None]:
    """An empty database, unless it is the usual one: a run may leave anything in it."""
    server = postgres.shared()
    if name == server.database:
        yield
        return
    server.run("createdb", *server.address(), name)
    try:
        yield
    finally:
        server.run("dropdb", *server.address(), "--force", name)


def _reason(output: str, code: int) -> str:
    """The test that failed, as pytest names it, or the one that hung."""
    lines = output.splitlines()
    failed = [line.split(" ", 1)[1] for line in lines if line.startswith(("FAILED tests", "ERROR tests"))]
    hung = [line.split(" ")[0] for line in lines[-1:] if code == HUNG and line.startswith("tests/")]
    return [*failed, *hung, "conftest.py" if "conftest" in output else f"exit code {code}"][0]
