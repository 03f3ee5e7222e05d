"""Bugs in the row locks and guards of PostgreSQL: each lets two verbs at once come to what neither order comes to."""

import shlex

from tests.mutants.planted import Mutant

SQL = "engines/postgres/queries.sql"
RACES = "tests/engines/postgres/test_races.py"


def _race(name: str, old: str, new: str, situation: str, *, file: str = SQL) -> Mutant:
    test = f"{RACES}::test_two_verbs_at_once_come_to_what_they_come_to_in_turn[{situation}]"
    return Mutant(f"race: {name}", file, old, new, shlex.quote(test))


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
        "as attempt from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update",
        "as attempt from demora.jobs where id = any(:ids::uuid[]) order by seq + 0",
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
        "for update\n    ) as job\n),\nmoved as (\n    update demora.jobs set\n        status = case",
        "\n    ) as job\n),\nmoved as (\n    update demora.jobs set\n        status = case",
        "running",
    ),
    _race(
        "a plain success does not lock the job",
        "for update\n    ) as job\n),\nmoved as (\n    update demora.jobs set\n        status = {COMPLETED}",
        "\n    ) as job\n),\nmoved as (\n    update demora.jobs set\n        status = {COMPLETED}",
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
        "and due_at <= wall and {of_types}\n        for update of jobs skip locked",
        "and due_at <= wall and {of_types}\n        for update of jobs",
        "ready",
    ),
    _race(
        "a claim locks nothing",
        "and due_at <= wall and {of_types}\n        for update of jobs skip locked",
        "and due_at <= wall and {of_types}",
        "ready",
    ),
    _race(
        "a claim takes a row that has changed since",
        "from clock, chosen where jobs.ctid = chosen.row and not chosen.expired",
        "from clock, chosen where jobs.seq = chosen.seq and not chosen.expired",
        "ready",
    ),
    _race(
        "a claim by ids waits for locked jobs",
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
        "a pace that is set takes its state back to what it was before a release",
        "set_at = excluded.set_at, set_by = excluded.set_by, follows = false",
        "set_at = excluded.set_at, set_by = excluded.set_by, follows = false, state = excluded.state",
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
        "return await self._database.write_once(lambda session: set_pace(session, queue, request, by, usual, setting))",
        "await self._database.write_once(lambda session: set_pace(session, queue, request, by, usual, setting))\n"
        "        return await self.of(queue)",
        "backlog",
        file="engines/postgres/paces.py",
    ),
    Mutant(
        "race: a claim forgets the pace that another transaction has locked",
        "engines/postgres/jobs/runs.py",
        "    if due:  # another transaction has locked the pace or its jobs\n",
        "    if False:\n",
        "tests/engines/postgres/test_locked_releases.py",
    ),
    _race(
        "an add trusts that a job it met is still there",
        "        removed = [job for job in missing if job.id not in before]  # deleted since the statement found them\n",
        "        removed = list[NewJob]()\n        before |= {job.id: before[job.id] for job in missing}\n",
        "failed",
        file="engines/postgres/jobs/adding.py",
    ),
    _race(
        "parking waits for locked jobs",
        "and lane < {PARKED} and not {of_types}\n        for update of jobs skip locked",
        "and lane < {PARKED} and not {of_types}\n        for update of jobs",
        "ready",
    ),
    _race(
        "a purge by number waits for locked jobs",
        "order by jobs.seq for update of jobs skip locked",
        "order by jobs.seq for update of jobs",
        "one dead letter",
    ),
    _race(
        "a purge by number takes jobs that have changed since",
        ") and status > {PROCESSING}\norder by jobs.seq for update of jobs skip locked",
        ") order by jobs.seq",
        "one dead letter",
    ),
    _race(
        "a type that no worker knows fails jobs that another call has locked",
        "    order by seq for update skip locked\n)\nupdate",
        "    order by seq for update\n)\nupdate",
        "unknown",
    ),
    _race(
        "a type that no worker knows fails a job that was put off",
        "and status + 0 < {PROCESSING} and lane >= {PARKED}\n        and due_at <= :until\n",
        "and status + 0 < {PROCESSING}\n",
        "unknown",
    ),
    _race(
        "calls that must be alone are not",
        "select pg_advisory_xact_lock(hashtext(:what::text))",
        "select hashtext(:what::text)",
        "secrets",
    ),
    _race(
        "a schedule is changed without a lock",
        "from demora.schedules where name = :name for update of schedules",
        "from demora.schedules where name = :name",
        "fire time due",
    ),
    _race(
        "schedules of an application are brought in without a lock",
        "or application = :application\norder by name for update of schedules",
        "or application = :application\norder by name",
        "a defined schedule",
    ),
    _race(
        "schedules are fired without a lock",
        "from demora.schedules where name = any(:names::text[]) order by name for update",
        "from demora.schedules where name = any(:names::text[]) order by name",
        "fire time due",
    ),
    _race(
        "a firing does not lock the jobs of its schedule",
        "and status < {COMPLETED} order by seq for update",
        "and status < {COMPLETED} order by seq",
        "second fire time due",
    ),
    _race(
        "fire times are foreseen without a lock",
        "from demora.schedules order by name for update of schedules",
        "from demora.schedules order by name",
        "moved fire time",
    ),
    _race(
        "statistics are merged by two processes at once",
        "select pg_try_advisory_xact_lock(hashtext(:what::text)) as alone",
        "select true as alone, hashtext(:what::text)",
        "closed windows",
    ),
    _race(
        "a key is forgotten without the names that another call adds",
        '    forgotten = bool(await session.rows("forget_key", id=id))\n    if forgotten:\n'
        '        await session.rows("forget_names", id=id)\n',
        '    await session.rows("forget_names", id=id)\n    forgotten = bool(await session.rows("forget_key", id=id))\n',
        "a revoked key",
        file="engines/postgres/api_keys.py",
    ),
    Mutant(
        "race: a release that finds its jobs locked uses their release times",
        SQL,
        "set state = (:states::text[])[greatest(jobs, 1)] from taken, (select count(*) as jobs from moved) as done\n"
        "    where paces.queue = taken.queue and (jobs > 0 or cardinality(:release_times::bigint[]) = 0)",
        "set state = (:states::text[])[cardinality(:states::text[])] from taken\n    where paces.queue = taken.queue",
        "tests/engines/postgres/test_locked_releases.py",
    ),
)
