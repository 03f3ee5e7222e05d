"""The files of an open database: whether another program has cut, deleted or replaced them."""

import os
import time

import apsw

from ....errors import StoreDamaged, StoreGone
from ....system import notices

_HEADER, _FRAME_HEADER = 32, 24  # bytes of the log, and of each page in it
_TRIES = 3  # looks at a log that is too short: SQLite in another process may be shortening it

_Identity = tuple[int, int]


class OpenedFile:
    """The database file as it was when it was opened. Looks at it without opening it: closing it again would drop the locks
    of this process."""

    def __init__(self, file: str) -> None:
        self._file, self._is = file, _identity(os.stat(file))

    def is_there(self) -> bool:
        return _found(self._file) == self._is

    def check(self) -> None:
        """Raise `StoreGone` if the file was deleted or replaced."""
        found = _found(self._file)
        if found != self._is:
            problem = StoreGone(self._file, replaced=found is not None)
            notices.store_damaged(problem)
            raise problem


class FileWatch:
    """Watches the database file and the write-ahead log of one open connection."""

    def __init__(self, db: apsw.Connection, file: OpenedFile) -> None:
        self._file, self._log = file, db.filename_wal
        self._frame = int(db.pragma("page_size")) + _FRAME_HEADER
        self._log_is: _Identity | None = None
        self._least = 0  # bytes that the log must have
        self._damage: str | None = None  # for good: what was cut off is lost
        if db.pragma("journal_mode") == "wal" and os.path.exists(self._log):
            self._log_is = _identity(os.stat(self._log))
            self.judge(db)

    def expect(self, db: apsw.Connection) -> None:
        """Note how much SQLite believes to be in the log. Not for use in a transaction."""
        frames, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        self._least = _HEADER + frames * self._frame if frames > 0 else 0

    def is_well(self) -> bool:
        """Whether the files are unchanged and the log is long enough. If not, `judge` decides whether that is harmful."""
        if self._damage is not None:
            return False
        if not self._file.is_there():
            return False
        if self._log_is is None:
            return True
        try:
            log = os.stat(self._log)
        except OSError:
            return False
        return (log.st_dev, log.st_ino) == self._log_is and log.st_size >= self._least

    def judge(self, db: apsw.Connection) -> None:
        """Raise an error if a change of the files is harmful. Not for use in a transaction."""
        try:
            if self._damage is not None:
                raise StoreDamaged(self._log, self._damage)
            self._file.check()
            if self._log_is is not None:
                self._judge_log(db)
        except StoreDamaged as problem:
            self._damage = problem.damage
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the rest of the log must not overwrite pages
            notices.store_damaged(problem)
            raise

    def _judge_log(self, db: apsw.Connection) -> None:
        for left in reversed(range(_TRIES)):
            if _found(self._log) != self._log_is:
                raise StoreDamaged(self._log, "was deleted or replaced")
            self.expect(db)
            size = os.stat(self._log).st_size
            if size >= self._least:
                return  # a checkpoint of another program shortened it, which is harmless
            if left:
                time.sleep(0.001)
        raise StoreDamaged(self._log, f"was cut to {size} bytes")


def _found(file: str) -> _Identity | None:
    try:
        return _identity(os.stat(file))
    except OSError:
        return None


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino
