"""The clocks that SQL may ask: `demora_wall()` and `demora_boot()`, as the verb under way read them."""

import time
import weakref

import apsw

from .statements import SQL


class Stamps:
    """What one connection tells the triggers of an audit, and what it knows of them.

    `events` counts the events written on this connection: each asks once for the wall clock. `audited` says whether there
    are triggers: they were there when the connection was opened, or have been heard of since. `lined` says whether
    there is a line in sight. `boot` is the clock that leases are judged by.
    """

    __slots__ = ("__weakref__", "audited", "boot", "events", "lined", "wall", "wall_us")

    def __init__(self) -> None:
        self.wall_us, self.boot = time.time_ns() // 1000, 0
        self.wall = self.wall_us // 1000
        self.events = 0
        self.audited = False
        self.lined = False

    def ask_wall(self, *_: object) -> int:
        self.events += 1
        self.audited = True
        return self.wall

    def ask_boot(self, *_: object) -> int:
        return self.boot


_stamps: "weakref.WeakKeyDictionary[apsw.Connection, Stamps]" = weakref.WeakKeyDictionary()


def stamps_of(db: apsw.Connection) -> Stamps:
    """The stamps of a connection, the same for all who share it; the functions are registered at the first call."""
    stamps = _stamps.get(db)
    if stamps is None:
        stamps = _stamps[db] = Stamps()
        for name, ask in (("demora_wall", stamps.ask_wall), ("demora_boot", stamps.ask_boot)):
            db.create_scalar_function(name, ask, 0, flags=apsw.SQLITE_INNOCUOUS)
    return stamps


def has_triggers(db: apsw.Connection) -> bool:
    return bool(triggers(db))


def triggers(db: apsw.Connection) -> str:
    """The text of a trigger of the audit, empty if there is none."""
    return "".join(text for (text,) in db.execute(SQL["audit_triggers"]))
