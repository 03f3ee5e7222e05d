"""Statistics on SQLite: what settlements and releases count, and how windows are merged and read."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

from ...core.spans import from_ms, span_ms, to_ms
from ...core.statistics import (
    MOST_PAIRS,
    WINDOW_MS,
    Key,
    Name,
    Stretch,
    Tally,
    Window,
    Windows,
    begin_of,
    capped,
    widened,
)
from ...store.statistics import Depth, Merged, Standing, Taking
from ..sql.statistics import (
    RELEASES,
    WIDTHS,
    closed_before,
    decode,
    first_id,
    first_of,
    hand_over,
    kept_since,
    merged_window,
    sample_key,
    samples,
    standing_of,
    text,
    thinnings,
)
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database


class Counted(defaultdict[Name, Tally]):
    """What one call counts, by queue and type."""

    def __init__(self) -> None:
        super().__init__(Tally)


class Writer:
    """Writes the windows of one process.

    It remembers what it wrote last, so that it need not read the row before each write. Each row has a version, and a write
    replaces only the version that it knows. If the last write was rolled back, the version differs, and the row is read.
    """

    def __init__(self, process: str) -> None:
        self._process, self._at = process, 0
        self._written: dict[Name, tuple[int, Tally]] = {}  # the version and the tally in the window that begins `at`

    def write(self, tx: Transaction, counted: Counted) -> None:
        """Add what a call has counted to the present window, in the transaction of the call."""
        at = begin_of(tx.wall, WINDOW_MS)
        if at != self._at:
            self._at, self._written = at, {}
        for name, tally in counted.items():
            version, sum = self._written.pop(name, (0, tally))
            if version:
                sum.add(tally)
            key = (at, *name, self._process)
            tx.db.execute(SQL["replace_tally"], (text(sum), version + 1, *key, version))
            if not tx.db.changes():
                version, sum = self._read(tx, key, tally)
                tx.db.execute(SQL["keep_tally"], (*key, text(sum), version + 1))
            self._written[name] = version + 1, sum

    def _read(self, tx: Transaction, key: tuple[int, str, str, str], tally: Tally) -> tuple[int, Tally]:
        """The version of the row, and the sum of what it has and the tally."""
        for version, before in tx.db.execute(SQL["tally"], key):
            sum = decode(before)
            sum.add(tally)
            return version, sum
        return 0, tally


def count_releases(tx: Transaction, queue: str, released: Iterable[tuple[str, int]]) -> None:
    """Count the jobs that a pace releases: the type of each, and the time that it was due before."""
    counted = Counted()
    for type, due_at in released:
        counted[queue, type].add_release((tx.wall - due_at) * 1000)
    Writer(RELEASES).write(tx, counted)


class SqliteStatistics:
    """What became of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, stretch: Stretch, taking: Taking) -> None:
        await self._database.search(lambda tx: read(tx, stretch, taking), None)

    async def merge(self, *, limit: int) -> Merged:
        return await self._database.write(lambda tx: merge(tx, limit), limit)

    async def sample(self, depths: Mapping[str, Depth]) -> None:
        await self._database.write(lambda tx: sample(tx, depths), len(depths))

    async def added(self, starts: Sequence[datetime], width: timedelta) -> list[int]:
        return await self._database.search(lambda tx: [_added(tx, to_ms(start), span_ms(width)) for start in starts], None)

    async def standing(self) -> Standing:
        return await self._database.search(standing, None)


def read(tx: Transaction, stretch: Stretch, taking: Taking) -> None:
    first = first_of(stretch, tx.wall)
    taking.begin(from_ms(tx.wall))
    merged = map(merged_window, tx.db.execute(SQL["statistics_since"], (*WIDTHS, first)))
    live = map(_live, tx.db.execute(SQL["tallies_since"], (first,)))
    hand_over(chain(merged, live), taking)


def _live(row: tuple[int, str, str, str]) -> tuple[Key, Tally]:
    """A window that a process has written."""
    at, queue, type, tally = row
    return Key(queue, type, at, WINDOW_MS), decode(tally)


def merge(tx: Transaction, limit: int) -> Merged:
    closed = list(tx.db.execute(SQL["take_tallies"], (closed_before(tx.wall), limit)))
    more = len(closed) >= limit
    _keep(tx, widened(map(_live, closed)))
    for width, before, wider in thinnings(tx.wall):
        old = list(tx.db.execute(SQL["take_statistics"], (width, before, limit)))
        _keep(tx, widened(map(merged_window, old), wider))
        more = more or len(old) >= limit
    tx.db.execute(SQL["forget_statistics"], (*WIDTHS, kept_since(tx.wall)))
    mark = sample_key("", tx.wall)
    tx.db.execute(SQL["mark_sampled"], (mark.width, mark.at, mark.queue, mark.type, text(Tally())))
    return Merged(more, sample=tx.db.changes() > 0)


def sample(tx: Transaction, depths: Mapping[str, Depth]) -> None:
    _keep(tx, samples(depths, tx.wall))


def _keep(tx: Transaction, windows: Windows) -> None:
    """Add to the windows of all processes."""
    for key, tally in capped(windows, _names(tx, windows)).items():
        where = (key.width, key.at, key.queue, key.type)
        for (before,) in tx.db.execute(SQL["statistic"], where):
            tally.add(decode(before))
        tx.db.execute(SQL["keep_statistic"], (*where, text(tally)))


def _names(tx: Transaction, windows: Windows) -> dict[Window, set[Name]]:
    """The names in the windows that would have more than `MOST_PAIRS` with these."""
    found, names = {(key.width, key.at) for key in windows}, dict[Window, set[Name]]()
    for window in found:
        [(count,)] = tx.db.execute(SQL["count_names"], window)
        if count + len(windows) > MOST_PAIRS:
            names[window] = set(tx.db.execute(SQL["statistics_names"], window))
    return names


def _added(tx: Transaction, start: int, width: int) -> int:
    [(count,)] = tx.db.execute(SQL["count_added"], (first_id(start), first_id(start + width)))
    return int(count)


def standing(tx: Transaction) -> Standing:
    running = tx.db.execute(SQL["activity_running"])
    return standing_of(tx.wall, running, tx.db.execute(SQL["activity_due"], (tx.wall,)))
