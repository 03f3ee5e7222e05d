"""Says in a sentence why SQLite cannot use a database file. SQLite's own errors name neither the file nor the cause."""

import os
from pathlib import Path

import apsw

NOTHING_WRITTEN = "nothing was written"
_FULL = f"the disk is full, and {NOTHING_WRITTEN}: make room, and see demora purge, which deletes old jobs"
_READ_ONLY = f"the database file is read-only for this process, and {NOTHING_WRITTEN}: see demora doctor"


def why_not(path: Path | None, problem: Exception) -> str:
    """Return why a file cannot be opened, with the remedy."""
    if path is not None and path.is_dir():
        return f"{path} is a folder, not a database file; name a file in it, for example sqlite:///{path / 'demora.db'}"
    if path is not None and not path.parent.is_dir():
        return f"there is no folder {path.parent} for the database file {path.name}; create it, or correct the database URL"
    if path is not None and path.exists() and not _may(path, os.R_OK | os.W_OK):
        return f"this user may not read and write the database file {path}; run demora as its owner, or name another file"
    if path is not None and not _may(path.parent, os.W_OK | os.X_OK):
        return (
            f"this user may not write to the folder {path.parent}, where SQLite keeps its log beside {path.name}; run "
            "demora as the owner of the folder, or name a file in another one"
        )
    reason = problem.strerror if isinstance(problem, OSError) else why_refused(problem)
    return f"cannot use the database file {path}: {reason}"


def why_refused(problem: Exception) -> str:
    """Return why SQLite refused a statement on an open file."""
    if isinstance(problem, apsw.FullError):
        return _FULL
    return _READ_ONLY if isinstance(problem, apsw.ReadOnlyError) else f"SQLite: {problem}"


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
