"""Bugs in rooms that the simulator does not reach, each with the tests of its room."""

from tests.mutants.planted import CUT, Mutant

PG_SQL, PG_RUNS = "engines/postgres/queries.sql", "engines/postgres/jobs/runs.py"
PG_SCHEDULES, PG_WEBHOOKS, PG_KEYS = (f"engines/postgres/{name}.py" for name in ("schedules", "webhooks", "api_keys"))
SETTLE, TWO_ATTEMPTS = "tests/conformance/test_settle.py", "tests/conformance/test_two_attempts.py"
MAKE_MANY = "tests/client/test_make_many.py"


def _answered_again(what: str, file: str, call: str, case: str) -> Mutant:
    """A verb that after a lost answer runs again, in a transaction, instead of asking what became of the first try."""
    old = f"self._database.write_once(lambda session: {call})"
    once = '__import__("demora.engines.postgres.connection.transactions", fromlist=["Once"]).Once'
    new = f"self._database.write(lambda again: {once}(lambda session: {call})(again))"
    test = f"{CUT}::test_a_verb_whose_commit_is_cut_answers_and_leaves_what_it_does_in_peace"
    return Mutant(f"PostgreSQL: {what}", file, old, new, f"{test} -k {case}")


PLAIN_SUCCESSES = (
    Mutant(
        "a plain success does not look at the token",
        PG_SQL,
        "and locked.token = current and old_status = {PROCESSING} and locked.lease_until > wall and not put_off",
        "and old_status = {PROCESSING} and locked.lease_until > wall and not put_off",
        SETTLE,
    ),
    Mutant(
        "a plain success is accepted after the lease lapsed",
        PG_SQL,
        "and old_status = {PROCESSING} and locked.lease_until > wall and not put_off\n    returning jobs.status",
        "and old_status = {PROCESSING} and not put_off\n    returning jobs.status",
        SETTLE,
    ),
    Mutant(
        "a plain success is accepted for a job that ended",
        PG_SQL,
        "locked.token = current and old_status = {PROCESSING} and locked.lease_until > wall and not put_off",
        "locked.token = current and coalesce(locked.lease_until > wall, true) and not put_off",
        SETTLE,
    ),
    Mutant(
        "a plain success of a job with a webhook is recorded without a delivery",
        PG_SQL,
        "locked.lease_until > wall and not put_off\n    returning jobs.status",
        "locked.lease_until > wall\n    returning jobs.status",
        "tests/conformance/test_deliveries.py",
    ),
    Mutant("a plain success drops the log", PG_RUNS, "        and not report.log\n", "", SETTLE),
    Mutant("a plain success drops the progress", PG_RUNS, "        and report.progress is None\n", "", SETTLE),
    Mutant("a plain success drops the message", PG_RUNS, "        and report.message is None\n", "", SETTLE),
    Mutant(
        "options of jobs in one call are compared by equality",
        "client/client.py",
        "one is other or (type(one) is type(other) and bool(one == other))",
        "bool(one == other)",
        MAKE_MANY,
    ),
)

PG_ADDING = "engines/postgres/jobs/adding.py"
DUE_AT_ONCE = (
    Mutant(
        "PostgreSQL: a delayed job that shares a call with others is due at once",
        PG_ADDING,
        "all(map(_is_simple, jobs))",
        "any(map(_is_simple, jobs))",
        "tests/conformance/test_add.py -k remembered",
    ),
    Mutant(
        "PostgreSQL: a job that expires never does if it is due at once",
        PG_ADDING,
        "and job.delay is None and never_expires and",
        "and job.delay is None and",
        "tests/conformance/test_add.py -k remembered",
    ),
    Mutant(
        "PostgreSQL: jobs of one call that are due at once wake no worker",
        PG_ADDING,
        '    session.wake(Topic.READY)\n    now = from_ms(row["wall"])',
        '    now = from_ms(row["wall"])',
        "tests/conformance/test_subscribe.py -k one_call",
    ),
    Mutant(
        "PostgreSQL: jobs of one call that are due at once are stored in another order",
        PG_SQL,
        "    from request order by place\n),\nnamed",
        "    from request order by place desc\n),\nnamed",
        "tests/conformance/test_add.py -k in_order",
    ),
)

LOST_ANSWERS = (
    _answered_again("a schedule that was added is said to exist", PG_SCHEDULES, "add(session, schedule, origin, by)", "add"),
    _answered_again(
        "a definition that was stored is said to be the same", PG_SCHEDULES, "define(session, definition)", "define"
    ),
    _answered_again("a schedule is changed twice", PG_SCHEDULES, "change(session, name, request, by)", "change"),
    _answered_again("a schedule that was removed is said to be unknown", PG_SCHEDULES, "_remove(session, name)", "remove"),
    _answered_again("a firing that was applied is said to be lost", PG_SCHEDULES, "fire(session, firings)", "fire"),
    _answered_again(
        "a job that was triggered is said to be a replay", PG_SCHEDULES, "trigger(session, name, job)", "trigger"
    ),
    _answered_again(
        "fire times that were filled are said to be full", PG_SCHEDULES, "backfill(session, name, fire_times)", "backfill"
    ),
    _answered_again("a URL that was enabled is said to be enabled before", PG_WEBHOOKS, "enable(session, url)", "enable"),
    _answered_again(
        "a secret that was forgotten is said to be unknown", PG_WEBHOOKS, "forget_secret(session, id)", "secret"
    ),
    _answered_again("a session that was ended is said to be unknown", PG_KEYS, "end_session(session, digest)", "session"),
    _answered_again("a key that was forgotten is said to be unknown", PG_KEYS, "forget_key(session, id)", "key"),
    _answered_again(
        "a pace is recorded twice",
        "engines/postgres/paces.py",
        "set_pace(session, queue, request, by, usual, setting)",
        "pace",
    ),
)

API_METRICS, CLIENT_STATS, WHY = "tests/api/test_metrics.py", "client/statistics.py", "tests/client/test_why.py"
OUTCOMES = "tests/api/test_queues.py tests/api/test_pace.py tests/api/test_schedules.py tests/api/test_metrics.py"
CLIENT_WHY, KEYS, RESTORE = "client/why.py", "tests/conformance/test_keys.py", "tests/conformance/test_restore.py"
EVENT_STORE, SQLITE_EVENTS = "tests/conformance/test_event_store.py", "engines/sqlite/events.py"

BARE_ROOMS = (
    Mutant(
        "metrics count slots that a worker claimed ahead as busy",
        CLIENT_STATS,
        "busy=min(standing.running.get(worker.id, 0), worker.slots),",
        "busy=standing.running.get(worker.id, 0),",
        API_METRICS,
    ),
    Mutant(
        "metrics show the youngest ready job as the oldest",
        CLIENT_STATS,
        "queue = min(standing.due_since, key=",
        "queue = max(standing.due_since, key=",
        API_METRICS,
    ),
    Mutant(
        "metrics name the idlest queues first",
        CLIENT_STATS,
        "key=lambda name: (-size(name), name)",
        "key=lambda name: (size(name), name)",
        API_METRICS,
    ),
    Mutant(
        "metrics add the depths of queues to the runs",
        "core/statistics.py",
        "        if not key.type:\n            self._take_depth",
        "        if False:\n            self._take_depth",
        API_METRICS,
    ),
    Mutant(
        "metrics count a minute that is over again",
        CLIENT_STATS,
        "if minute >= open_since or minute not in self._added:",
        "if True:",
        API_METRICS,
    ),
    Mutant(
        "the history of a pace has the waits of the queue that it holds",
        CLIENT_STATS,
        "for queue in protected if queue in totals",
        "for queue in [pacing.queue] if queue in totals",
        API_METRICS,
    ),
    Mutant(
        "metrics of one type are those of all",
        "api/operations/metrics.py",
        "metrics_types(query.span, name=query.name,",
        "metrics_types(query.span, name=None,",
        API_METRICS,
    ),
    Mutant(
        "a page of schedules is one too long",
        "api/operations/schedules.py",
        "schedules_view(found, query.limit)",
        "schedules_view(found, query.limit + 1)",
        "tests/api/test_schedules.py",
    ),
    Mutant(
        "a schedule is changed by nobody",
        "api/operations/schedules.py",
        'change_schedule(call.path["name"], by=call.by,',
        'change_schedule(call.path["name"], by="HTTP",',
        "tests/api/test_schedules.py",
    ),
    Mutant(
        "a queue that is paused over HTTP does not say by whom",
        "api/operations/queues.py",
        "request.reason, by=call.by))",
        'request.reason, by="HTTP"))',
        OUTCOMES,
    ),
    Mutant(
        "the queue * takes an order over HTTP",
        "api/operations/queues.py",
        "if name == EVERY_QUEUE and any(",
        "if False and any(",
        OUTCOMES,
    ),
    Mutant(
        "several statuses in one value are one status",
        "wire/requests.py",
        'for one in some.split(",")]',
        "for one in [some]]",
        "tests/api/test_find_jobs.py",
    ),
    Mutant(
        "a page of queues says that there is another",
        "client/queues.py",
        "page[-1].name if len(found) > limit else None",
        "page[-1].name if len(found) >= limit else None",
        "tests/api/test_queues.py",
    ),
    Mutant(
        "to resume a queue that nobody named creates it",
        "client/queues.py",
        "        await self.queue(queue)\n        return await self._set_queue(queue, QueueChange(paused=False))",
        "        return await self._set_queue(queue, QueueChange(paused=False))",
        "tests/api/test_queues.py",
    ),
    Mutant(
        "a preview of a pace changes it",
        "client/paces.py",
        "        if now is None:\n            return PacePreview(pace, [], 0)",
        "        await self._paces.set(queue, request, by=CODE, usual=self._usual)\n"
        "        if now is None:\n            return PacePreview(pace, [], 0)",
        "tests/client/test_paces.py",
    ),
    Mutant(
        "a queue that never had a pace cannot be left out",
        "client/paces.py",
        "if last[0].is_off if last else queue == EVERY_QUEUE:",
        "if last[0].is_off if last else True:",
        "tests/client/test_paces.py",
    ),
    Mutant(
        "a pace that is taken off again is recorded again",
        "client/paces.py",
        "if last[0].is_off if last else queue == EVERY_QUEUE:",
        "if False if last else queue == EVERY_QUEUE:",
        "tests/client/test_paces.py",
    ),
    Mutant(
        "a field that a view leaves out is read",
        "wire/shape.py",
        "for own, one, rule in shown if one is not msgspec.UNSET}",
        "for own, one, rule in shown}",
        "tests/wire",
    ),
    Mutant(
        "a given field is converted all the same",
        "wire/shape.py",
        "for name, own, rule in self._fields if own not in given)",
        "for name, own, rule in self._fields)",
        "tests/wire",
    ),
    Mutant(
        "a page of schedules has no next one",
        "wire/schedules.py",
        "shown[-1].schedule.name if len(found) > len(shown) else None)",
        "None)",
        "tests/api/test_schedules.py",
    ),
    Mutant(
        "a dead worker counts as one that serves the queue",
        CLIENT_WHY,
        "if worker.live]",
        "if True]",
        WHY,
    ),
    Mutant(
        "the place of a held job is one too early",
        CLIENT_WHY,
        "outlook.job.queue, outlook.ahead + 1",
        "outlook.job.queue, outlook.ahead",
        WHY,
    ),
    Mutant("11 jobs are the 11st", CLIENT_WHY, "number % 100 in (11, 12, 13)", "number % 100 in (12, 13)", WHY),
    Mutant(
        "SQLite: a job after a deleted one is not told",
        SQLITE_EVENTS,
        "(int(row_id) - _REUSED, int(wall))",
        "(int(row_id), int(wall))",
        EVENT_STORE,
    ),
    Mutant(
        "SQLite: a position ahead of the database is believed",
        SQLITE_EVENTS,
        "and int(since) <= int(here)):",
        "):",
        EVENT_STORE,
    ),
    Mutant(
        "SQLite: pages of ended jobs have no end",
        SQLITE_EVENTS,
        "following = (*found[-1][:2], until) if len(found) == limit else None",
        "following = None",
        EVENT_STORE,
    ),
    Mutant(
        "PostgreSQL: a key in force can be forgotten",
        PG_SQL,
        "where id = :id and (revoked_at is not null or expires_at <= wall) returning id",
        "where id = :id returning id",
        "tests/conformance/test_keys.py -k only_a_key",
    ),
    Mutant(
        "PostgreSQL: a revoked key gets a new secret",
        PG_SQL,
        "from clock where id = :id and revoked_at is null and",
        "from clock where id = :id and",
        "tests/conformance/test_key_limits.py -k not_in_force",
    ),
    Mutant(
        "PostgreSQL: a second revocation moves the first",
        PG_SQL,
        "set revoked_at = coalesce(revoked_at, wall)",
        "set revoked_at = wall",
        "tests/conformance/test_keys.py -k first_revocation",
    ),
    Mutant(
        "PostgreSQL: a heartbeat forgets new types of a worker",
        PG_SQL,
        "queues = excluded.queues, types = excluded.types,\n    heartbeat_at",
        "queues = excluded.queues,\n    heartbeat_at",
        "tests/conformance/test_workers.py tests/conformance/test_unknown_types.py",
    ),
    Mutant(
        "PostgreSQL: a secret that replaces others does not end them",
        PG_SQL,
        "from clock where ends_at is null and :others_end_in::bigint is not null and id <> :id)",
        "from clock where false and :others_end_in::bigint is not null and id <> :id)",
        "tests/conformance/test_deliveries.py -k secret",
    ),
    Mutant(
        "PostgreSQL: pages of moved jobs go on beyond their beginning",
        "engines/postgres/line_feed.py",
        'full = len(found) == limit and int(last["moved"]) <= end',
        "full = len(found) == limit",
        "tests/conformance/test_moved.py -k pages",
    ),
    Mutant(
        "PostgreSQL: a cancel that was told of can be undone",
        PG_SQL,
        "        and not exists (\n            select from demora.jobs as told where told.cause = jobs.id "
        "and told.created_at >= jobs.completed_at\n        )\n",
        "",
        "tests/conformance/test_restore.py -k webhook",
    ),
    Mutant(
        "PostgreSQL: a job that no caller cancelled is restored",
        PG_SQL,
        "and error = :error and cancel_requested_at is null\n",
        "and cancel_requested_at is null\n",
        "tests/conformance/test_restore.py -k by_itself",
    ),
    Mutant(
        "PostgreSQL: a cancel can be undone for ever",
        PG_SQL,
        "        and completed_at > wall - :within::bigint\n",
        "        and :within::bigint is not null\n",
        "tests/conformance/test_restore.py -k after_the_time",
    ),
    Mutant(
        "PostgreSQL: a restored retry forgets its error",
        PG_SQL,
        "            then (select attempts.error from",
        "            then (select null::text from",
        "tests/conformance/test_restore.py -k restored_retry",
    ),
    Mutant(
        "a field of a payload is renamed in an error",
        "wire/names.py",
        "or _snake(name[0]), own) + payload + inside",
        "or _snake(name[0]), field)",
        "tests/remote/test_problems.py",
    ),
    Mutant(
        "a key that was reused does not say for which job",
        "remote/problems.py",
        "None if nth is None else int(nth[1])",
        "None",
        "tests/remote/test_client.py -k same_key",
    ),
    Mutant(
        "a command imports OpenTelemetry although nothing traces",
        "system/traces.py",
        'if "opentelemetry.trace" not in sys.modules and _PROVIDER not in os.environ:',
        "if False:",
        "tests/test_imports.py",
    ),
    Mutant(
        "a provider that a variable names is not asked",
        "system/traces.py",
        'if "opentelemetry.trace" not in sys.modules and _PROVIDER not in os.environ:',
        'if "opentelemetry.trace" not in sys.modules:',
        "tests/system/test_traces.py -k variable",
    ),
    Mutant(
        "a command imports the other families",
        "cli/root.py",
        "if cmd_name in COMMANDS and cmd_name not in self.commands:",
        "for cmd_name in {cmd_name: 0, **COMMANDS} if cmd_name in COMMANDS and cmd_name not in self.commands else ():",
        "tests/test_imports.py",
    ),
    Mutant(
        "a signal that reaches a fork before it has begun is forgotten",
        "worker/processes/child.py",
        "signal.pthread_sigmask(signal.SIG_BLOCK, numbers)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, ())",
        "tests/worker/test_child.py -k before_it_has_begun",
    ),
    Mutant(
        "a claim that arrives while its worker is removed registers it again",
        "client/workers/remote_workers.py",
        "            if id not in self._removed:\n                return worker\n",
        "            return worker\n",
        "tests/remote/test_gone_workers.py -k arrives_while",
    ),
    Mutant(
        "the log escapes what can be printed",
        "system/notices.py",
        "one if one.isprintable() else",
        "one if one.isascii() and one.isprintable() else",
        "tests/worker/test_run_log.py -k own_letters",
    ),
    Mutant(
        "the doctor advises more slots for jobs that no worker can run",
        "doctor/jobs.py",
        "if not live or _able(waiting, live)]",
        "]",
        "tests/doctor/test_jobs.py",
    ),
)


ROOMS = (*PLAIN_SUCCESSES, *DUE_AT_ONCE, *LOST_ANSWERS, *BARE_ROOMS)
