"""What a client says to PostgreSQL, read along the way: which of its words commit something."""

import re
import struct

_WRITES = re.compile(rb"\b(insert into|update|delete from)\b", re.IGNORECASE)
_BEFORE_START = {80877103, 80877104}  # asks for encryption, after which the client begins anew


class Wire:
    """One connection, as the client speaks on it. A write outside of a transaction commits itself."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = self._in_transaction = False
        self._writes: dict[bytes, bool] = {}  # prepared statement: whether it writes
        self._bound = False

    def commits(self, data: bytes) -> bool:
        """Whether something is committed once all of this has arrived."""
        self._rest += data
        found = False
        while (word := self._next()) is not None:
            found = self._is_commit(*word) or found
        return found

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next whole message: its kind and what it holds."""
        head = 1 if self._started else 0
        if len(self._rest) < head + 4:
            return None
        end = head + struct.unpack_from("!I", self._rest, head)[0]
        if len(self._rest) < end:
            return None
        word, self._rest = (self._rest[:head], self._rest[head + 4 : end]), self._rest[end:]
        return word

    def _is_commit(self, kind: bytes, body: bytes) -> bool:
        match kind:
            case b"":
                self._started = struct.unpack_from("!I", body)[0] not in _BEFORE_START
            case b"P":
                name, sql, _ = body.split(b"\0", 2)
                self._writes[name] = _WRITES.search(sql) is not None
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                self._bound = self._writes.get(name, False)
            case b"E":
                return self._bound and not self._in_transaction
            case b"Q":
                return self._simple(body.upper())
        return False

    def _simple(self, sql: bytes) -> bool:
        begins, commits = sql.startswith(b"BEGIN"), sql.startswith(b"COMMIT")
        self._in_transaction = begins or (self._in_transaction and not commits and not sql.startswith(b"ROLLBACK"))
        return commits
