"""Who holds the lock that others wait for, as the kernel tells it.

No file of the database is opened for that: to close one again would drop this process's own locks on it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_LOCKS = Path("/proc/locks")
_WRITER = range(120, 123)  # bytes of the -shm file that whoever writes, checkpoints or recovers locks (SQLite's wal.c)
_FILE = range(0x40000000, 0x40000000 + 512)  # bytes of the database file that whoever has it for himself locks


def describe_holder(database: str) -> str | None:
    """Which processes hold the lock of a database file: `process 4711 (demora, stopped)`. None if that cannot be told, as on
    systems other than Linux."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    found = [*_holding(lines, database + "-shm", _WRITER), *_holding(lines, database, _FILE)]
    return " and ".join(_describe(pid) for pid in sorted(set(found))) or None


def _holding(lines: list[str], file: str, wanted: range) -> Iterator[int]:
    """The processes with an exclusive lock on one of these bytes. The kernel names a file by device and inode; some file
    systems have other devices for `stat`, and then the inode must do."""
    try:
        seen = os.stat(file)
    except OSError:
        return
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
    matches = [line for line in map(str.split, lines) if _is_on(line, str(seen.st_ino), wanted)]
    exact = [line for line in matches if line[5].rpartition(":")[0] == device]
    for line in exact or matches:
        yield int(line[4])


def _is_on(line: list[str], inode: str, wanted: range) -> bool:
    """Whether a line such as `7: POSIX ADVISORY WRITE 4711 fe:00:131 120 120` is about these bytes. A line of one that only
    waits has an arrow in second place."""
    if len(line) != 8 or line[1] == "->" or line[3] != "WRITE" or line[5].rpartition(":")[2] != inode:
        return False
    first, last = int(line[6]), wanted.stop if line[7] == "EOF" else int(line[7])
    return first < wanted.stop and last >= wanted.start


def _describe(pid: int) -> str:
    if pid <= 0:
        return "a process of another container"
    if pid == os.getpid():
        return f"this process itself ({pid})"
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return f"process {pid}"
    return f"process {pid} ({name}{', stopped' if state in 'tT' else ''})"
