"""Bugs chosen by someone who had not read the tests."""

from tests.mutants.planted import ANYTHING, Mutant

FOREIGN = (
    Mutant(
        "A job that was cancelled while running and is retried by hand carries the old request and is cancelled again.",
        "engines/sqlite/queries.sql",
        "strays = 0, completed_at = null, started_at = null, cancel_requested_at = null, progress = null,",
        "strays = 0, completed_at = null, started_at = null, progress = null,",
        ANYTHING,
    ),
    Mutant(
        "A hand-back gives the job a new ready time, so that it loses its place in the queue at each rolling restart.",
        "core/verdict.py",
        "        case HandedBack():\n            return Verdict(job.waiting, counts=False)",
        "        case HandedBack():\n            return Verdict(job.waiting, delay=ZERO, counts=False)",
        ANYTHING,
    ),
    Mutant(
        "Of several scheduled jobs added in one call the latest, not the earliest, decides whether waiters are woken.",
        "engines/sqlite/jobs/adding.py",
        "        if due_at < head[DUE_AT]:\n            earliest[queue, lane, rank] = row",
        "        if due_at > head[DUE_AT]:\n            earliest[queue, lane, rank] = row",
        ANYTHING,
    ),
    Mutant(
        "The same idempotency key twice in one call makes two jobs.",
        "engines/sqlite/jobs/adding.py",
        "taken[job.key.namespace, job.key.key] = job.key.request_hash, answer",
        "taken[job.key.namespace, job.id] = job.key.request_hash, answer",
        ANYTHING,
    ),
    Mutant(
        "A queue first named in a call that a key conflict refused is believed to be on record, and is never listed.",
        "engines/sqlite/engine.py",
        "if unnamed and len(self._named_queues) < MOST_NAMES and not any(answer.conflict for answer in answers):",
        "if unnamed and len(self._named_queues) < MOST_NAMES:",
        ANYTHING,
    ),
    Mutant(
        "A worker with fewer free slots than there are lanes and ranks takes the oldest jobs instead of the most urgent.",
        "engines/sqlite/jobs/runs.py",
        "ready = sorted((h for h in firsts if h.due_at <= tx.wall), key=lambda h: h.place)",
        "ready = sorted((h for h in firsts if h.due_at <= tx.wall), key=lambda h: (h.due_at, h.rowid))",
        ANYTHING,
    ),
    Mutant(
        "A run with a short timeout that starts beside one with a long timeout is timed out only when the long one is due.",
        "worker/run.py",
        "        if deadline < self._at:\n            self._set_timer(deadline)",
        "        if self._timer is None:\n            self._set_timer(deadline)",
        ANYTHING,
    ),
    Mutant(
        "When the commit of a batch fails, the calls that had run are told that they succeeded, although nothing is stored.",
        "engines/sqlite/connection/transactions.py",
        "            finished += batch\n            batch.clear()\n            topics.clear()\n"
        "            for pending in finished:\n                pending.error = pending.error or translate(problem)\n",
        "            for pending in batch:\n                pending.error = pending.error or translate(problem)\n"
        "            finished += batch\n            batch.clear()\n            topics.clear()\n",
        ANYTHING,
    ),
    Mutant(
        "A run that is ended before its first step never says how it ended: its slot stays taken and its job hangs.",
        "worker/run.py",
        "        if self.began and self.task is not None:",
        "        if self.task is not None:",
        ANYTHING,
    ),
    Mutant(
        "The boot is never recorded, so that after a reboot the leases of dead workers hold, by a clock that began anew.",
        "engines/sqlite/registry.py",
        "    if row is None or row[0] != boot_id:",
        "    if row is not None and row[0] != boot_id:",
        ANYTHING,
    ),
    Mutant(
        "A due time between two milliseconds is rounded down, so that the job starts before it is due.",
        "core/spans.py",
        "    return -((_EPOCH - value) // MILLISECOND)",
        "    return (value - _EPOCH) // MILLISECOND",
        ANYTHING,
    ),
    Mutant(
        "The log lines of a job stay in the database after the job was removed or purged.",
        "engines/sqlite/jobs/changes.py",
        '    tx.db.execute(SQL["remove_attempts"], (key,))\n    tx.db.execute(SQL["remove_logs"], (key,))\n',
        '    tx.db.execute(SQL["remove_attempts"], (key,))\n',
        ANYTHING,
    ),
    Mutant(
        "Jobs that wait in a worker whose loop is blocked for ever are renewed for ever, and nobody else can run them.",
        "worker/leases.py",
        "return now - held.renewed >= third and now - self._loop_alive < self._lease.total_seconds()",
        "return now - held.renewed >= third",
        ANYTHING,
    ),
    Mutant(
        "A payload whose keys contain NUL is accepted, although not every engine can give it back.",
        "core/payload.py",
        "            check_text(key, field)\n",
        "",
        ANYTHING,
    ),
)
