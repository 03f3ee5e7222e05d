"""The referee of races: what two verbs come to one after the other, and whether an interleaving comes to the same."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection.connections import connected, in_schema
from demora.proof import check
from demora.store.jobs import Claimed
from tests.clock import TestClock
from tests.engines.postgres.race_verbs import HOOKED, SHORT, SITUATIONS, Scene, Verb
from tests.engines.postgres.staging import Answered, Call, Gate, Stage

_TABLES = ("jobs", "attempts", "logs", "idempotency_keys", "queues", "paces", "pace_changes", "events", "schedules")
_TABLES += ("schedule_slots", "schedule_processes", "schedulers", "workers", "parked_types", "tallies", "statistics")
_TABLES += ("api_keys", "key_names", "sessions", "webhook_secrets", "disabled_webhooks")
_OF_META = "name like 'line_%' or name in ('zones', 'settled')"
_DELETES = "; ".join(f"delete from demora.{table}" for table in _TABLES) + f"; delete from demora.meta where {_OF_META}"
_KEEPS = "; ".join(
    f"create temp table if not exists kept_{table} as select * from demora.{table} with no data; "
    f"delete from kept_{table}; insert into kept_{table} select * from demora.{table}"
    for table in (*_TABLES, "meta")
)
_PUTS = "; ".join(f"insert into demora.{table} overriding system value select * from kept_{table}" for table in _TABLES)
_PUTS += f"; insert into demora.meta select * from kept_meta where {_OF_META}"
# Functions, so that the server plans their statements once in a session.
_FUNCTIONS = "; ".join(
    f"create function pg_temp.{name}() returns void language plpgsql as $$ begin {statements}; end $$"
    for name, statements in (("empty", _DELETES), ("keep", _KEEPS), ("restore", f"{_DELETES}; {_PUTS}"))
)
# A queue without settings is a name on a list. An add that keeps another job may put it there, or may not. Each actor counts
# its runs in rows of its own. What the checker reads beyond that is the record: events, and the order of jobs and queues.
_LOOK = """select json_build_object(
'jobs', (
    select json_agg(to_jsonb(r) - '{seq,claim,moved,settled}'::text[] || jsonb_build_object('told', settled is not null)
        order by id) from demora.jobs as r
),
'tallies', (select json_agg(r order by at, queue, type) from (
    select at, queue, type, sum(completed) as completed, sum(failed) as failed, sum(retried) as retried,
        sum(cancelled) as cancelled, sum(returned) as returned, sum(released) as released
    from demora.tallies group by at, queue, type
) as r),
'statistics', (select json_agg(r order by width, at, queue, type) from demora.statistics as r),
'parked_types', (select json_agg(r order by type, queue) from demora.parked_types as r),
'workers', (select json_agg(r order by id) from demora.workers as r),
'schedulers', (select json_agg(r order by id) from demora.schedulers as r),
'api_keys', (select json_agg(r order by id) from demora.api_keys as r),
'key_names', (select json_agg(r order by key_id, kind, name) from demora.key_names as r),
'sessions', (select json_agg(r order by digest) from demora.sessions as r),
'secrets', (select json_agg(r order by id) from demora.webhook_secrets as r),
'disabled', (select json_agg(r order by url) from demora.disabled_webhooks as r),
'meta', (select json_agg(r order by name) from demora.meta as r
    where name in ('line_epoch', 'line_run', 'zones', 'settled')),
'attempts', (select json_agg(r order by job_id, token) from demora.attempts as r),
'logs', (select json_agg(to_jsonb(r) - 'seq' order by job_id, seq) from demora.logs as r),
'keys', (select json_agg(r order by scope, key) from demora.idempotency_keys as r),
'queues', (select json_agg(r order by name) from demora.queues as r where changed_at is not null),
'paces', (select json_agg(r order by queue) from demora.paces as r),
'schedules', (select json_agg(r order by name) from demora.schedules as r),
'slots', (select json_agg(r order by schedule, slot_at) from demora.schedule_slots as r),
'pace_changes', (select json_agg(to_jsonb(r) - 'seq' order by seq) from demora.pace_changes as r))::text as rows,
json_build_object(
'events', (select json_agg(to_jsonb(r) - 'seq' order by seq) from demora.events as r),
'jobs', (select json_agg(id order by seq) from demora.jobs),
'queues', (select json_agg(name order by name) from demora.queues))::text as record"""


_WRITES = re.compile(r"\b(insert|update|delete)\b")
_ORDERS = (("held", "other"), ("other", "held"))
_OF_PARKED_TYPES = ("park", "park_by_ids", "note_unknown", "forget_parked")  # these lock a type, for which others wait


class Case(NamedTuple):
    """A situation, the verb that is held, and the one that runs meanwhile."""

    situation: str
    hooked: bool
    held: Verb
    other: Verb

    def caller(self, role: str) -> str:
        """Who calls a verb: the same one whichever of the two is held, so that the orders are run once for both."""
        first = self.held.name <= self.other.name
        return "ann" if (role == "held") == first else "bob"

    def __str__(self) -> str:
        hook = ", with a webhook" if self.hooked else ""
        return f"{self.situation}{hook}: {self.held.name} held, {self.other.name} meanwhile"


class Outcome(NamedTuple):
    """What both verbs answered, and the rows after them. None: the verb did not run."""

    held: Answered | None
    other: Answered | None
    rows: str


class Fault(NamedTuple):
    """An interleaving that came to something else than any order."""

    case: Case
    gate: Gate
    reason: str


class Races:
    """Runs cases on one schema; each finds in it what its situation has, and nothing else."""

    def __init__(self, stage: Stage, setter: PostgresStore, clock: TestClock, connection: Any, look: Any) -> None:
        self._stage, self._setter, self._clock, self._connection, self._look = stage, setter, clock, connection, look
        self._kept: tuple[Any, Scene, dict[str, Any]] | None = None  # a situation, its scene and its clock
        self._serial: dict[Any, tuple[list[Answered], str]] = {}
        self._gates: dict[Any, list[Gate]] = {}
        self._sound: set[tuple[str, str]] = set()  # rows and records in which no rule is broken
        self._record = ""  # that was read with the last rows
        self.count = 0

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str, schema: str) -> AsyncIterator["Races"]:
        clock = TestClock()
        setter = PostgresStore(url, PostgresOptions(schema=schema, connections=2, notify=False), clock=clock, audit=True)
        await setter.open()
        try:
            async with Stage(url, schema, clock).opened() as stage, connected(url) as connection:
                await connection.execute("set session_replication_role = replica")  # no triggers of the audit
                await connection.execute(in_schema(_FUNCTIONS, schema))
                look = await connection.prepare(in_schema(_LOOK, schema))
                yield cls(stage, setter, clock, connection, look)
        finally:
            await setter.close()

    async def faults(self, case: Case, *, thorough: bool) -> list[Fault]:
        """Race two verbs, with the one held at each of its gates; only at statements that write, unless `thorough`."""
        if not await self._matters(case):
            return []
        found = []
        gates = [(n, gate) for n, gate in enumerate(await self._gates_of(case)) if n]  # before the first one is an order
        allowed = [await self._in_turn(case, *order) for order in _ORDERS]
        if case.held.in_pieces:
            allowed += [await self._race(case, n) for n, gate in gates if gate.when == "before"]
        for number, gate in gates:
            if not thorough and not self._writes(gate):
                continue
            if (reason := await self._fault(case, gate, await self._race(case, number), allowed)) is not None:
                found.append(Fault(case, gate, reason))
        return found

    async def _matters(self, case: Case) -> bool:
        """Whether both verbs write, or one writes and the order shows in an answer."""
        nothing = await self._in_turn(case)
        writers = [verb for verb in ("held", "other") if (await self._in_turn(case, verb)).rows != nothing.rows]
        if len(writers) != 1:
            return bool(writers)
        return await self._in_turn(case, "held", "other") != await self._in_turn(case, "other", "held")

    async def _gates_of(self, case: Case) -> list[Gate]:
        await self._in_turn(case, "held")
        return self._gates[case.situation, case.hooked, case.held.name]

    async def _race(self, case: Case, gate: int) -> Outcome:
        scene = await self._set(case)
        self._stage.held.deadlocks = self._stage.other.deadlocks = 0
        held, other = await self._stage.race(
            _call(case.held, scene, case.caller("held")), gate, _call(case.other, scene, case.caller("other"))
        )
        self.count += 1
        return Outcome(held, other, await self._rows())

    async def _fault(self, case: Case, gate: Gate, outcome: Outcome, allowed: list[Outcome]) -> str | None:
        """What is wrong with the race just run."""
        if self._stage.held.deadlocks + self._stage.other.deadlocks:
            return "deadlock"
        for verb, actor in ((case.held, self._stage.held), (case.other, self._stage.other)):
            if verb.skipped is not None and actor.waited and gate.statement not in _OF_PARKED_TYPES:
                return f"{verb.name} waited for a lock, and should have skipped the row"
        read = outcome.rows, self._record
        broken = [] if read in self._sound else await self._broken_rules()
        if not broken:
            self._sound.add(read)
        else:
            in_order = [rule for order in _ORDERS for rule in await self._broken_in_turn(case, order)]
            if new := [rule for rule in broken if rule not in in_order]:
                return new[0]
        if outcome in allowed or await self._looked_away(case, outcome, allowed):
            return None
        return _difference(outcome, allowed)

    async def _looked_away(self, case: Case, outcome: Outcome, allowed: list[Outcome]) -> bool:
        """Whether one verb skipped the row that the other one had, and left it as it was."""
        for verb, answer, other in (("held", outcome.held, "other"), ("other", outcome.other, "held")):
            skipped = getattr(case, verb).skipped
            if skipped is not None and answer is not None and skipped(answer.value):
                alone = [*allowed, await self._in_turn(case, other)]
                if any(_loosely(outcome) == _loosely(one._replace(**{verb: answer})) for one in alone):
                    return True
        return False

    async def _in_turn(self, case: Case, *order: str) -> Outcome:
        """What the verbs come to, one after the other."""
        verbs = {"held": case.held, "other": case.other}
        key = case.situation, case.hooked, *((case.caller(role), verbs[role].name) for role in order)
        if key not in self._serial:
            scene = await self._set(case)
            answers = []
            for role in order:
                answers.append(await self._stage.held.alone(_call(verbs[role], scene, case.caller(role))))
                self._gates.setdefault((case.situation, case.hooked, verbs[role].name), self._stage.held.passed)
            self._serial[key] = answers, await self._rows()
        answers, rows = self._serial[key]
        by_role = dict(zip(order, answers, strict=True))
        return Outcome(by_role.get("held"), by_role.get("other"), rows)

    async def _set(self, case: Case) -> Scene:
        """Set a situation up. Its verbs run once: later their rows are put back, which takes one statement."""
        situation = case.situation, case.hooked
        if self._kept is None or self._kept[0] != situation:
            await self._connection.execute("select pg_temp.empty()")
            vars(self._clock).update(vars(TestClock()))  # the same times in each race
            self._setter._named_queues.clear()
            scene = await SITUATIONS[case.situation](self._setter, self._clock, HOOKED if case.hooked else {})
            await self._connection.execute("select pg_temp.keep()")
            self._kept = situation, scene, dict(vars(self._clock))
        await self._connection.fetchval("select pg_temp.restore()")
        _, scene, clock = self._kept
        vars(self._clock).update(clock)
        for actor in (self._stage.held, self._stage.other):
            actor.store._named_queues.clear()
            actor.store._database.opened().lined = False
        return scene

    async def _rows(self) -> str:
        rows: str
        rows, self._record = await self._look.fetchrow()
        return rows

    async def _broken_in_turn(self, case: Case, order: tuple[str, ...]) -> list[str]:
        """What the checker finds after an order: it judges by the settings at the end, also a job that ended before."""
        verbs, scene = {"held": case.held, "other": case.other}, await self._set(case)
        for role in order:
            await self._stage.held.alone(_call(verbs[role], scene, case.caller(role)))
        return await self._broken_rules()

    async def _broken_rules(self) -> list[str]:
        """The promises that the checker finds broken."""
        evidence = await self._setter.audit.evidence(integrity=False)
        return [f"{one.rule}: {one.says}" for one in check([], evidence).violations]

    def _writes(self, gate: Gate) -> bool:
        sql = self._setter._database.opened().statements[gate.statement].sql
        return gate.when != "before" and bool(_WRITES.search(sql))


def _call(verb: Verb, scene: Scene, actor: str) -> Call:
    return lambda store: verb.call(store, scene, actor)


def _loosely(outcome: Outcome) -> Outcome:
    """An outcome without what a verb may write that skips a job: a claim may have released it before, and housekeeping
    deletes expired keys all the same."""
    rows = json.loads(outcome.rows)
    rows["keys"] = [key for key in rows["keys"] or () if key["expires_at"] > key["created_at"] + SHORT]
    rows["jobs"] = [job | {"lane": None, "due_at": None} for job in rows["jobs"] or ()]
    return Outcome(_unreleased(outcome.held), _unreleased(outcome.other), json.dumps(rows))


def _unreleased(answered: Answered | None) -> Answered | None:
    """An answer without the jobs that a claim released, since either of two claims may have done so."""
    if answered is None or not isinstance(answered.value, Claimed):
        return answered
    return Answered(msgspec.structs.replace(answered.value, released=()))


def _difference(outcome: Outcome, allowed: list[Outcome]) -> str:
    """What the outcome has unlike each of the two orders."""
    return "\n or ".join(" | ".join(_all_unlike(outcome, one)) for one in allowed[:2])


def _all_unlike(got: Outcome, expected: Outcome) -> Iterator[str]:
    yield from _unlike("held", got.held, expected.held)
    yield from _unlike("other", got.other, expected.other)
    yield from _rows_unlike(got, expected)


def _unlike(name: str, got: Any, expected: Any) -> Iterator[str]:
    if got != expected:
        yield f"{name} answered {_short(got)} instead of {_short(expected)}"


def _rows_unlike(got: Outcome, expected: Outcome) -> Iterator[str]:
    there, here = json.loads(got.rows), json.loads(expected.rows)
    for table in there:
        if there[table] != here[table]:
            yield f"{table}: {_fields(there[table], here[table])}"


def _fields(got: list[Any] | None, expected: list[Any] | None) -> str:
    if len(got or ()) != len(expected or ()):
        return f"{len(got or ())} rows instead of {len(expected or ())}"
    pairs = zip(got or (), expected or (), strict=True)
    unlike = [(name, one[name], two.get(name)) for one, two in pairs for name in one if one[name] != two.get(name)]
    return ", ".join(f"{name}={here!r} not {there!r}" for name, here, there in unlike)


def _short(answer: Any) -> str:
    return repr(answer.value if isinstance(answer, Answered) else answer)[:400]
