"""Bugs in the row locks and guards of PostgreSQL: each lets two verbs at once come to what neither order comes to."""

from tests.mutants.planted import Mutant

SQL = "engines/postgres/queries.sql"
RACES = "tests/engines/postgres/test_races.py"


def _race(name: str, old: str, new: str, situation: str, *, file: str = SQL) -> Mutant:
    test = f"{RACES}::test_two_verbs_at_once_come_to_what_they_come_to_in_turn[{situation}]"
    return Mutant(f"race: {name}", file, old, new, test)


LOCKS = (
    _race(
        "a cancel does not lock the job",
        "    from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update\n),\ncancelled",
        "    from demora.jobs where id = any(:ids::uuid[]) order by seq + 0\n),\ncancelled",
        "ready",
    ),
    _race(
        "a retry by hand does not lock the job",
        "any(:ids::uuid[]) order by seq + 0 for update),\nretried",
        "any(:ids::uuid[]) order by seq + 0),\nretried",
        "failed",
    ),
    _race("a change does not lock the job", "where id = :id for update of jobs", "where id = :id", "ready"),
    _race(
        "a removal does not lock the job",
        "select id, status from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update",
        "select id, status from demora.jobs where id = any(:ids::uuid[]) order by seq + 0",
        "failed",
    ),
    _race(
        "a renewal does not lock the job",
        "for update\n    ) as job\n),\nrenewed",
        "\n    ) as job\n),\nrenewed",
        "running",
    ),
    _race(
        "a settlement does not lock the job",
        "for update\n    ) as job\n),\nmoved",
        "\n    ) as job\n),\nmoved",
        "running",
    ),
    _race(
        "a unique job is replaced without a lock",
        "    and generation = 1\nfor update",
        "    and generation = 1",
        "ready",
    ),
    _race(
        "a claim waits for locked jobs",
        "    order by turn, place, seq limit :limit::int\n    for update of jobs skip locked",
        "    order by turn, place, seq limit :limit::int\n    for update of jobs",
        "ready",
    ),
    _race(
        "a claim locks nothing",
        "    order by turn, place, seq limit :limit::int\n    for update of jobs skip locked",
        "    order by turn, place, seq limit :limit::int",
        "ready",
    ),
    _race(
        "a claim takes a row that has changed since",
        "from clock, chosen where jobs.ctid = chosen.row and not chosen.expired",
        "from clock, chosen where jobs.seq = chosen.seq and not chosen.expired",
        "ready",
    ),
    _race(
        "a draw waits for locked jobs",
        "(paused or lane = any(held)))\n        for update of jobs skip locked",
        "(paused or lane = any(held)))\n        for update of jobs",
        "ready",
    ),
    _race(
        "a purge by age locks nothing",
        "order by completed_at, seq limit :limit::int for update skip locked",
        "order by completed_at, seq limit :limit::int",
        "failed",
    ),
    _race(
        "expired keys are deleted without a lock",
        "from demora.idempotency_keys where expires_at <= (select wall from clock)\n"
        "    order by expires_at limit :limit::int for update skip locked",
        "from demora.idempotency_keys where expires_at <= (select wall from clock)\n"
        "    order by expires_at limit :limit::int",
        "failed",
    ),
    _race(
        "expiry locks nothing",
        "and expires_at <= (select wall from clock)\n    order by expires_at limit :limit::int for update skip locked",
        "and expires_at <= (select wall from clock)\n    order by expires_at limit :limit::int",
        "expired",
    ),
    _race(
        "settings of a queue are changed without a lock",
        "from demora.queues where name = :name for update",
        "from demora.queues where name = :name",
        "ready",
    ),
    _race(
        "a pace is set without its lock",
        "select pace, state, follows from demora.paces where queue = :queue for update",
        "select pace, state, follows from demora.paces where queue = :queue",
        "backlog",
    ),
    _race(
        "a release does not lock its pace",
        "else pace = :pace end\n    for update skip locked",
        "else pace = :pace end",
        "backlog",
    ),
    _race(
        "a release does not look at the state it planned from",
        "where queue = :queue and state = :before and case",
        "where queue = :queue and (state = :before or true) and case",
        "backlog",
    ),
    _race(
        "a release does not lock its jobs",
        "lane = any(:lanes) and due_at <= :wall\n        for update skip locked",
        "lane = any(:lanes) and due_at <= :wall",
        "paced",
    ),
    _race(
        "a released job may have ended meanwhile",
        "where jobs.seq = found.seq and status < {PROCESSING} and queue = :queue and lane = any(:lanes) and due_at <= :wall",
        "where jobs.seq = found.seq and queue = :queue and lane = any(:lanes) and due_at <= :wall",
        "paced",
    ),
    _race(
        "a pace is answered as it is after the commit",
        "        after = await pacing_of(session, queue)  # under the lock, else it may be what another call has set since\n"
        "    session.topics |= {Topic.READY, Topic.PACE}\n",
        "    session.topics |= {Topic.READY, Topic.PACE}\n    after = await pacing_of(session, queue)\n",
        "backlog",
        file="engines/postgres/paces.py",
    ),
    _race(
        "a claim forgets the pace that another transaction has locked",
        "    if due:  # another transaction has locked the pace or its jobs\n",
        "    if False:\n",
        "paced",
        file="engines/postgres/runs.py",
    ),
    _race(
        "an add trusts that a job it met is still there",
        "        removed = [job for job in missing if job.id not in before]  # since the statement met them\n",
        "        removed = list[NewJob]()\n        before |= {job.id: before[job.id] for job in missing}\n",
        "failed",
        file="engines/postgres/changes.py",
    ),
)
