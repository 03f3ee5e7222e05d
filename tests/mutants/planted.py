"""The bugs. `caught_by` names what must catch it: the simulator, or a test."""

from typing import NamedTuple

SIM = "simulator"
ANYTHING = f"tests/conformance tests/core tests/engines tests/worker tests/proof or {SIM}"


class Mutant(NamedTuple):
    """One planted bug: in this file the text `old`, which stands there once, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    caught_by: str = SIM


SQL = "engines/sqlite/queries.sql"
RUNS = "engines/sqlite/runs.py"
CONFORMANCE = "tests/conformance/"
WRITES, CUT = "engines/postgres/writes.py", "tests/engines/postgres/test_lost_answers.py"
LOSS, TENDING, STORE = "tests/lined/test_loss.py", "lined/tending.py", "lined/store.py"
LINE_NODES = "engines/redis/connections.py"
LINE_TAKE, LINE_PUT = "engines/redis/scripts/take.lua", "engines/redis/scripts/put.lua"

MUTANTS = (
    Mutant(
        "a settlement does not look at the token",
        SQL,
        "where id = :id and token = :token and status = 3 and (lease",
        "where id = :id and status = 3 and (lease",
    ),
    Mutant("a success does not look at the token", SQL, "jobs.token = done.token and status = 3", "status = 3"),
    Mutant("the token does not grow", SQL, "token = token + 1", "token = max(token, 1)"),
    Mutant(
        "a settlement is accepted after the lease lapsed",
        SQL,
        "and (lease_until <= :boot) = :lapsed",
        "and (:lapsed = 0 or lease_until <= :boot)",
    ),
    Mutant(
        "a success is accepted after the lease lapsed",
        SQL,
        "status = 3 and lease_until > :boot\nreturning jobs.id",
        "status = 3\nreturning jobs.id",
    ),
    Mutant(
        "a lease is taken over too early",
        SQL,
        "where status = 3 and lease_until <= ? order by",
        "where status = 3 and lease_until <= ? + 1500 order by",
    ),
    Mutant("a wish to cancel is ignored", SQL, "and (cancel_requested_at is null or :stands)", "and (1 or :stands)"),
    Mutant(
        "a job starts before it is due",
        SQL,
        "rank = ? and due_at <= ?\norder by due_at, rowid limit ?",
        "rank = ? and due_at <= ? + 40\norder by due_at, rowid limit ?",
    ),
    Mutant("a hand-back counts as an attempt", RUNS, '"credit": int(not verdict.counts)', '"credit": 0'),
    Mutant(
        "an attempt is not counted",
        "core/verdict.py",
        "return self.attempt > self.max_retries",
        "return self.attempt > self.max_retries + 1",
    ),
    Mutant("a retry by hand does not count attempts anew", SQL, "credits = token, retries = 0", "retries = 0"),
    Mutant(
        "an ended job can be cancelled",
        SQL,
        "error = ? where id = ? and status < 3",
        "error = ? where id = ? and status <> 3",
    ),
    Mutant(
        "a running job can be removed",
        SQL,
        "delete from jobs where id = ? and status > 3",
        "delete from jobs where id = ? and status > 2",
    ),
    Mutant(
        "a key is not looked at",
        "engines/sqlite/additions.py",
        "        if found is None:\n            return None\n        id, request_hash",
        "        if found is not None or True:\n            return None\n        id, request_hash",
    ),
    Mutant(
        "leases are not renewed",
        "worker/leases.py",
        "return now < held.deadline and (",
        "return False and (",
        "tests/worker/test_leases.py",
    ),
    Mutant(
        "nobody settles a lapse",
        "worker/worker.py",
        "            await self._store.settle([self._lapse(lapsed) for lapsed in claimed.lapsed])\n",
        "",
    ),
    Mutant(
        "a verdict that could not be recorded is dropped",
        "worker/ledger.py",
        "                await asyncio.sleep(wait)\n",
        "                return [None] * len(batch)\n",
        "tests/worker/test_leases.py",
    ),
    Mutant(
        "the backlog is forgotten when a worker stops",
        "worker/worker.py",
        "            self._enter(job, HandedBack())\n",
        "",
        "tests/worker/test_leases.py",
    ),
    Mutant(
        "a lapse is no attempt",
        "core/verdict.py",
        "            return _after_failure(Raised(error), job, drawn)\n",
        "            return Verdict(job.waiting, lane=Lane.RETRY, delay=job.retry_delay, counts=False)\n",
        "tests/core/test_verdict.py",
    ),
    Mutant(
        "backoff does not grow",
        "core/backoff.py",
        "doublings: int = min(failures - 1, _MOST_DOUBLINGS)",
        "doublings: int = 0",
        "tests/core/test_backoff.py",
    ),
    Mutant(
        "aging has the wrong sign",
        "core/order.py",
        "return rank * step +",
        "return -rank * step +",
        CONFORMANCE + "test_claim_order.py",
    ),
    Mutant(
        "real-time jobs have no head start",
        "core/order.py",
        "0 if lane == Lane.REALTIME else",
        "0 if lane != Lane.REALTIME else",
        CONFORMANCE + "test_claim_order.py",
    ),
    Mutant(
        "a paused queue hands out jobs",
        "engines/sqlite/claims.py",
        "if paused_at is not None:",
        "if paused_at is None and False:",
        CONFORMANCE + "test_claim.py",
    ),
    Mutant(
        "an add wakes nobody", "engines/sqlite/additions.py", "    _wake(tx, new)\n", "", CONFORMANCE + "test_subscribe.py"
    ),
    Mutant(
        "the next due time behind a ready head is forgotten",
        "engines/sqlite/claims.py",
        "    for head in exhausted:",
        "    for head in ():",
        CONFORMANCE + "test_claim.py",
    ),
    Mutant(
        "a transaction begins deferred",
        "engines/sqlite/engine.py",
        '"begin immediate"',
        '"begin deferred"',
        "tests/engines/sqlite/test_locking.py",
    ),
    Mutant(
        "one bad call fails its whole batch",
        "engines/sqlite/batches.py",
        '            self._execute("rollback to one")\n',
        "            raise\n",
        "tests/engines/sqlite",
    ),
    Mutant(
        "a jump of the wall clock lapses leases",
        "engines/sqlite/claims.py",
        'tx.db.execute(SQL["lapsed"], (tx.boot,',
        'tx.db.execute(SQL["lapsed"], (tx.wall - 1_799_995_000_000,',
        CONFORMANCE,
    ),
    Mutant(
        "a dry run writes",
        "upkeep.py",
        "return None if dry_run else verb",
        "return verb",
        "tests/test_upkeep.py -k test_a_dry_run_counts_and_writes_nothing",
    ),
    Mutant(
        "a verb on many jobs ignores the tag",
        "bulk.py",
        "tag=None if tag is None else check_tag(tag)",
        "tag=None",
        "tests/test_upkeep.py -k test_only_dead_letters_that_match_are_touched",
    ),
    Mutant(
        "a worker that was given up may still settle",
        "upkeep.py",
        "        recovered = await self._settle([_taken(job) for job in held], [worker_id] * len(held))\n",
        "        recovered = [Recovered(job.id, worker_id, Status.RETRYING) for job in held]\n",
        "tests/test_upkeep.py -k test_a_worker_that_was_given_up_loses_its_jobs_and_cannot_settle",
    ),
    Mutant(
        "the doctor makes a database",
        "engines/sqlite/examination.py",
        "    if not path.exists():\n        advice = ",
        "    path.touch()\n    if not path.exists():\n        advice = ",
        "tests/cli/test_doctor.py -k test_a_database_that_is_not_there_is_a_problem_and_is_not_made",
    ),
    Mutant(
        "a fork is not noticed",
        "blocking.py",
        "os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)",
        "",
        "tests/test_blocking.py::test_a_forked_child_has_a_loop_and_a_connection_of_its_own",
    ),
    Mutant(
        "a file that the parent had open at a fork is opened in the child",
        "engines/sqlite/connections.py",
        "        _refuse_inherited(path)\n",
        "",
        "tests/test_blocking.py::test_a_file_that_was_open_on_an_event_loop_at_a_fork_is_refused_in_the_child",
    ),
    Mutant(
        "a drain stops after the first generation",
        "testing.py",
        "                await self._ledger.drain()\n",
        "                await self._ledger.drain()\n                return\n",
        "tests/testing/test_sandbox.py::test_a_drain_runs_what_is_due_and_what_that_enqueues",
    ),
    Mutant("NaN is let in", "core/payload.py", "if not isfinite(value):", "if False:", "tests/core"),
    Mutant(
        "an expiry is ignored",
        SQL,
        "and (expires_at is null or expires_at > ? or token > credits)",
        "and (1 or expires_at > ?)",
    ),
    Mutant(
        "a job that was tried expires all the same",
        SQL,
        "expires_at > ? or token > credits)",
        "expires_at > ?)",
        CONFORMANCE + "test_expiry.py",
    ),
    Mutant("a retry by hand keeps the expiry", SQL, "error = null, expires_at = null", "error = null", CONFORMANCE),
    Mutant(
        "uniqueness is not looked at",
        "engines/sqlite/additions.py",
        "if job.unique is not None:",
        "if False:",
        CONFORMANCE + "test_unique.py",
    ),
    Mutant(
        "a unique job that was claimed is in the way",
        SQL,
        "and status < 3 and token = 0 and generation = 1\n\n-- name: replace",
        "and status < 4 and generation = 1\n\n-- name: replace",
        CONFORMANCE + "test_unique.py",
    ),
    Mutant(
        "retention forgets the queue's own wish",
        "engines/sqlite/tidying.py",
        "own.get(queue, retention)",
        "retention",
        CONFORMANCE,
    ),
    Mutant(
        "one job more than wanted is deleted",
        "engines/sqlite/tidying.py",
        "status, keep.count, limit - removed)",
        "status, max(keep.count - 1, 0), limit - removed)",
        CONFORMANCE + "test_tidy.py",
    ),
    Mutant(
        "queues in turn are one line",
        "engines/sqlite/claims.py",
        "n if wish.in_turn else 0",
        "0",
        CONFORMANCE + "test_claim_order.py",
    ),
    Mutant(
        "housekeeping ends with the first error",
        "scheduler.py",
        "                except Exception as problem:\n",
        "                except ZeroDivisionError as problem:\n",
        "tests/test_scheduler.py",
    ),
    Mutant(
        "a process that did not end its run is kept",
        "worker/processes.py",
        "        else:\n            process.kill()\n",
        "        else:\n            self._idle.append(process)\n",
        "tests/worker/test_processes.py",
    ),
    Mutant(
        "the death of an idle process costs an attempt",
        "worker/processes.py",
        "            if fresh:\n",
        "            if True:\n",
        "tests/worker/test_processes.py",
    ),
    Mutant(
        "the start of a process counts against the timeout",
        "worker/run.py",
        "self.timeout + START_UP if own_process else self.timeout",
        "self.timeout if own_process else self.timeout",
        "tests/worker/test_processes.py",
    ),
    Mutant(
        "a process does not end when its pipe closes",
        "worker/child.py",
        "        finally:\n            _end_group()\n",
        "        finally:\n            pass\n",
        "tests/system/test_process_handlers.py",
    ),
    Mutant(
        "a worker outlives its supervisor",
        "supervisor.py",
        "    os.kill(os.getpid(), signal.SIGTERM)\n",
        "",
        "tests/system/test_supervisor.py",
    ),
    Mutant(
        "a ring within a transaction is kept from its own process",
        "engines/postgres/bells.py",
        'channels=self._channels_of(topics), sender="")',
        "channels=self._channels_of(topics), sender=self._own)",
        "tests/engines/postgres/test_within.py",
    ),
    Mutant(
        "a connection that commits by itself is taken for a transaction",
        "engines/postgres/joining.py",
        "if await self._borrowed.commits_by_itself():",
        "if await self._borrowed.commits_by_itself() and False:",
        "tests/engines/postgres/test_within.py",
    ),
    Mutant(
        "the scope of a key is not looked at",
        "api/guard.py",
        "if not key.allows(scope):",
        "if False:",
        "tests/api/test_every_route_is_guarded.py",
    ),
    Mutant(
        "reading includes operating",
        "core/access.py",
        "frozenset({Scope.READ}),",
        "frozenset({Scope.READ, Scope.OPERATE}),",
        "tests/core/test_access.py",
    ),
    Mutant(
        "a revoked key is accepted",
        "core/access.py",
        "return self.revoked_at is None and not self._expired(now)",
        "return not self._expired(now)",
        "tests/api/test_every_route_is_guarded.py",
    ),
    Mutant(
        "the expiry of a key is ignored",
        "core/access.py",
        "return self.revoked_at is None and not self._expired(now)",
        "return self.revoked_at is None",
        "tests/api/test_every_route_is_guarded.py",
    ),
    Mutant(
        "the secret of a key is not looked at",
        "core/access.py",
        "return key is not None and same and key.in_force(now)",
        "return key is not None and key.in_force(now)",
        "tests/api/test_every_route_is_guarded.py",
    ),
    Mutant(
        "a revocation opens the service again",
        SQL,
        "select exists (select 1 from api_keys)",
        "select exists (select 1 from api_keys where revoked_at is null)",
        "tests/api/test_guard.py",
    ),
    Mutant(
        "what was seen of a key is believed for ever",
        "api/guard.py",
        "self._timer() - seen.at < FRESH else None",
        "self._timer() - seen.at < 1e9 else None",
        "tests/api/test_guard.py",
    ),
    Mutant(
        "PostgreSQL: a write whose answer was cut is said not to have been made",
        WRITES,
        "raise _Lost(session.backend) from problem",
        "raise troubles.unreachable(problem) from problem",
        CUT,
    ),
    Mutant("PostgreSQL: a write is made again without reading", WRITES, "again=lost is not None", "again=False", CUT),
    Mutant(
        "PostgreSQL: a write is made again though the old session goes on",
        WRITES,
        "if not all(ended for (ended,) in answers):",
        "if False:",
        CUT,
    ),
    Mutant(
        "line: a row is leased although it waits in another queue",
        SQL,
        "where jobs.queue = wish.value ->> 1 and status < 3",
        "where status < 3",
        LOSS,
    ),
    Mutant(
        "line: what it says is due is believed",
        SQL,
        "status < 3 and due_at <= ?2 order by wish.key",
        "status < 3 order by wish.key, ?2",
        LOSS,
    ),
    Mutant(
        "line: another run of the server is not noticed",
        LINE_NODES,
        "if self.run and f",
        "if False and f",
        "tests/engines/redis/test_connections.py",
    ),
    Mutant("line: the run on record is not looked at", TENDING, "if record.run != run or state", "if state", LOSS),
    Mutant("line: a move into waiting is not marked", "engines/sqlite/lining.py", "tx.stamps.lined = 0", "pass", LOSS),
    Mutant(
        "line: nobody sweeps",
        TENDING,
        "                await self._sweep()\n            if ticks",
        "                pass\n            if ticks",
        LOSS,
    ),
    Mutant("line: what was handed out and forgotten stays so", LINE_TAKE, "'-inf', '(' .. ARGV[3]", "'-inf', '(0'", LOSS),
    Mutant(
        "line: an id keeps its old place",
        LINE_PUT,
        "if ARGV[4] ~= '1' then",
        "if false then",
        "tests/engines/redis/test_line.py",
    ),
    Mutant(
        "line: a vanished queue is taken for an empty one",
        LINE_TAKE,
        "if not kept[1] then",
        "if false then",
        "tests/engines/redis/test_line.py",
    ),
    Mutant(
        "line: claims wait for a line that is away",
        STORE,
        "return Claimed(jobs, [], ZERO) if jobs else None",
        "return Claimed(jobs, [], ZERO)",
        LOSS,
    ),
    Mutant("line: nobody asks SQL alone", STORE, "if limit and loop.time() < self._looked_at + LOOK:", "if limit:", LOSS),
)
