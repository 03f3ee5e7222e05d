"""How the jobs stand, for those who look after them."""

from datetime import timedelta

from ...core.spans import from_ms
from ...occupancy import Running
from ...survey import Pulse, Survey, Waiting
from . import rows, views
from .batches import Transaction
from .statements import SQL


def survey(tx: Transaction) -> Survey:
    [(lapsed, lapsed_at)] = tx.db.execute(SQL["survey_lapsed"], (tx.boot,))
    [(ahead, ahead_waiting, latest)] = tx.db.execute(SQL["survey_ahead"], (tx.wall,))
    return Survey(
        now=from_ms(tx.wall),
        waiting=[_waiting(row) for row in tx.db.execute(SQL["survey_waiting"], (tx.wall,))],
        lapsed=lapsed,
        lapsed_for=timedelta(milliseconds=tx.boot - lapsed_at if lapsed else 0),
        ahead=ahead,
        ahead_waiting=ahead_waiting or 0,
        ahead_by=timedelta(milliseconds=latest - tx.wall if ahead else 0),
        running=running(tx),
    )


def running(tx: Transaction) -> list[Running]:
    """The jobs whose leases hold, by worker and type."""
    return [
        Running(worker_id, type, jobs, rows.id_text(id), from_ms(since), from_ms(latest))
        for worker_id, type, jobs, id, since, latest in tx.db.execute(SQL["running"], (tx.boot,))
    ]


def _waiting(row: rows.Row) -> Waiting:
    queue, type, ready, delayed, oldest = row
    return Waiting(queue, type, ready, delayed, from_ms(oldest))


def pulse(tx: Transaction, mark: int | None) -> Pulse:
    [(newest,)] = tx.db.execute(SQL["pulse_mark"])
    due = tx.db.execute(SQL["pulse_due"], (tx.wall,))
    return Pulse(
        now=from_ms(tx.wall),
        mark=newest,
        queues=views.queues(tx),
        added={} if mark is None else dict(tx.db.execute(SQL["pulse_added"], (mark,))),
        running=dict(tx.db.execute(SQL["pulse_running"])),
        due_since={queue: from_ms(due_at) for queue, due_at in due},
    )
