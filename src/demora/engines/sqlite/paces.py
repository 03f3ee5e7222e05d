"""The paces of queues on SQLite: setting them, and reading them with the jobs that they hold."""

import json

from ...core.job import Lane
from ...core.pace import Pace, begin
from ...core.pace_request import PaceRequest
from ...core.spans import from_ms, span_ms
from ...store.audit import PaceFacts
from ...store.jobs import Topic
from ...store.paces import HOUR, PaceChange, Pacing
from ..stored_paces import facts_of, pace_of, state_of, text
from . import rows
from .connections import SQL
from .transactions import Transaction


def set_pace(
    tx: Transaction, queue: str, request: PaceRequest | None, by: str, usual: Pace, setting: str | None
) -> Pacing | None:
    if setting is not None:
        before = tx.db.execute(SQL["set_by_settings"], (queue,)).fetchone()
        if before is not None and before[0] == setting:
            return pacing(tx, queue)
    row = tx.db.execute(SQL["pace"], (queue,)).fetchone()
    now = pace_of(row[1]) if row is not None and row[1] is not None else usual
    wanted = None if request is None else request.over(now)
    pace = None if wanted is None else text(wanted)
    lanes = None if wanted is None else json.dumps(wanted.governs.lanes)
    state = text(begin(tx.wall)) if row is None else row[2]
    what = {"queue": queue, "pace": pace, "lanes": lanes, "state": state, "wall": tx.wall, "by": by}
    tx.db.execute(SQL["touch_queue"], {"name": queue, "wall": tx.wall})
    tx.db.execute(SQL["set_pace"], what)
    tx.db.execute(SQL["record_pace"], {**what, "setting": setting})
    tx.wake(Topic.READY)
    tx.wake(Topic.PACE)
    return pacing(tx, queue)


def pacings(tx: Transaction) -> list[Pacing]:
    return [_pacing(tx, row) for row in tx.db.execute(SQL["paces"]).fetchall()]


def pacing(tx: Transaction, queue: str) -> Pacing | None:
    row = tx.db.execute(SQL["pace"], (queue,)).fetchone()
    return None if row is None or row[1] is None else _pacing(tx, row)


def changes(tx: Transaction, queue: str, limit: int) -> list[PaceChange]:
    found = tx.db.execute(SQL["pace_changes"], (queue, limit))
    return [PaceChange(name, from_ms(at), by, None if pace is None else pace_of(pace)) for name, at, by, pace in found]


def facts(tx: Transaction) -> list[PaceFacts]:
    """Every change of a pace, in order, for a checker."""
    return [facts_of(queue, at, pace) for queue, at, pace in tx.db.execute(SQL["pace_facts"])]


def governed(tx: Transaction) -> dict[str, tuple[Lane, ...]]:
    """The lanes that paces govern, by queue."""
    return {queue: pace_of(pace).governs.lanes for queue, pace, *_ in tx.db.execute(SQL["paces"])}


def _pacing(tx: Transaction, row: rows.Row) -> Pacing:
    queue, text, state, set_at, set_by = row
    pace = pace_of(text)
    lanes, protected = json.dumps(pace.governs.lanes), json.dumps(pace.protected(queue))
    [(held, coming, soon, first)] = tx.db.execute(SQL["count_paced"], (tx.wall, queue, lanes, span_ms(HOUR)))
    waits = tx.db.execute(SQL["real_time_waits"], (protected, Lane.REALTIME, tx.wall)).fetchone()
    counts = (held or 0, coming or 0, soon or 0, None if first is None else from_ms(first))
    return Pacing(queue, pace, state_of(state), from_ms(set_at), set_by, from_ms(tx.wall), *counts, quiet=waits is None)
