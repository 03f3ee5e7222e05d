"""The line in memory, which simulations use, gives the same answers to the same verbs as the line on Redis."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from demora.core.job import Lane, Priority
from demora.core.pace import EVERY_QUEUE
from demora.line.port import LineLost, PutMode
from demora.line.redis import RedisLine, connections
from demora.store.line_feed import Arrangement, Entry, Place
from tests.modelline import USUAL, ModelLine, ModelServer
from tests.setups import redis_url

NOW = 1_000_000
PATIENCE = 60.0  # seconds
QUEUES = ("a", "b", "c")
ids = st.sampled_from([f"id{n}" for n in range(8)])
places = st.builds(
    Place,
    ids,
    st.sampled_from(QUEUES),
    st.sampled_from(list(Lane)),
    st.sampled_from(list(Priority)),
    st.integers(NOW - 50, NOW + 50),
)
chosen = st.none() | st.lists(st.sampled_from(QUEUES), min_size=1, max_size=3, unique=True)
Verb = Callable[[Any], Coroutine[Any, Any, Any]]


def distinct(wanted: list[Place]) -> list[Place]:
    """One place for each id and queue."""
    return list({(place.id, place.queue): place for place in wanted}.values())


class Both(RuleBasedStateMachine):
    """Two clients of each kind of line, asked the same."""

    runner: asyncio.Runner
    url: str

    def __init__(self) -> None:
        super().__init__()
        server = ModelServer(time.monotonic)
        self.lines = [(RedisLine(self.url), ModelLine(server)) for _ in range(2)]
        self.now = NOW

    @initialize()
    def begin(self) -> None:
        database = secrets.token_hex(6)
        for real, model in self.lines:
            for line in (real, model):
                self.runner.run(line.connect(database))
                self.runner.run(line.begin(1))

    def both(self, who: int, verb: Verb) -> None:
        answers = []
        for line in self.lines[who]:
            try:
                answers.append(self.runner.run(verb(line)))
            except LineLost:
                answers.append("lost")
        assert answers[0] == answers[1]
        real, model = [self.runner.run(line.places()) for line in self.lines[who]]
        assert real == model

    @rule(who=st.integers(0, 1), wanted=st.lists(places, max_size=5).map(distinct), mode=st.sampled_from(list(PutMode)))
    def put(self, who: int, wanted: list[Place], mode: PutMode) -> None:
        self.both(who, lambda line: line.put(wanted, now=self.now, mode=mode))

    @rule(
        who=st.integers(0, 1),
        queues=chosen,
        limit=st.integers(0, 4),
        later=st.integers(0, 20),
        in_turn=st.booleans(),
        old=st.booleans(),
    )
    def take(self, who: int, queues: list[str] | None, limit: int, later: int, in_turn: bool, old: bool) -> None:
        self.now += later
        stale = self.now - 10 if old else 0
        in_turn = in_turn and queues is not None
        self.both(who, lambda line: line.take(queues, limit, now=self.now, stale=stale, in_turn=in_turn))

    @rule(who=st.integers(0, 1), id=ids, queue=st.sampled_from(QUEUES))
    def done(self, who: int, id: str, queue: str) -> None:
        self.both(who, lambda line: line.done([Entry(id, queue)]))

    @rule(who=st.integers(0, 1))
    def done_at_last(self, who: int) -> None:
        self.both(who, lambda line: line.done([]))

    @rule(who=st.integers(0, 1), id=ids, queue=st.sampled_from(QUEUES))
    def remove(self, who: int, id: str, queue: str) -> None:
        self.both(who, lambda line: line.remove([Entry(id, queue)]))

    @rule(
        who=st.integers(0, 1),
        queue=st.sampled_from((*QUEUES, EVERY_QUEUE)),
        paused=st.booleans(),
        held=st.none() | st.sampled_from(list(Lane)),
    )
    def arrange(self, who: int, queue: str, paused: bool, held: Lane | None) -> None:
        each = len(Priority)
        offsets = tuple(None if n // each == held else offset for n, offset in enumerate(USUAL))
        self.both(who, lambda line: line.arrange([Arrangement(queue, offsets, paused)]))

    @rule(who=st.integers(0, 1), until=st.integers(0, 9), filled=st.booleans())
    def note(self, who: int, until: int, filled: bool) -> None:
        self.both(who, lambda line: line.checkpoint(until, f"{until}:", filled=filled))

    @rule(who=st.integers(0, 1), epoch=st.integers(1, 3))
    def begin_anew(self, who: int, epoch: int) -> None:
        self.both(who, lambda line: line.begin(epoch))

    @rule(who=st.integers(0, 1))
    def look(self, who: int) -> None:
        self.both(who, lambda line: line.state())

    @rule(who=st.integers(0, 1), name=st.sampled_from(("ann", "bob")))
    def maintain(self, who: int, name: str) -> None:
        self.both(who, lambda line: line.maintain(name, 60_000))

    def teardown(self) -> None:
        for pair in self.lines:
            for line in pair:
                self.runner.run(line.close())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Both]]:
    """The machine on this run's server, which may take its time: a busy computer is no difference between the lines."""
    monkeypatch.setattr(connections, "TIMEOUT", PATIENCE)
    for name in ("socket_timeout", "socket_connect_timeout"):
        monkeypatch.setitem(connections._OPTIONS, name, PATIENCE)
    with asyncio.Runner() as runner:
        yield type("BothHere", (Both,), {"runner": runner, "url": redis_url()})


EXPLORES = settings.get_current_profile_name() == "explore"
EXAMPLES = 200 if EXPLORES else 25
PHASES = [Phase.generate, Phase.shrink] if EXPLORES else [Phase.generate]  # to shrink against a server takes minutes


@pytest.mark.hypothesis
def test_the_line_in_memory_answers_as_the_one_on_redis(machine: type[Both]) -> None:
    how = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None, phases=PHASES)
    run_state_machine_as_test(machine, settings=settings(how, suppress_health_check=list(HealthCheck)))


# Differences that `make prove` has found


def test_a_job_with_two_places_leaves_the_one_that_was_next(machine: type[Both]) -> None:
    """The usual order serves the lanes in another order than that of their names."""
    both = machine()
    both.begin()
    both.put(0, [Place("id0", "b", Lane.REALTIME, Priority.HIGH, NOW)], PutMode.MOVED)
    both.put(0, [Place("id0", "b", Lane.SCHEDULED, Priority.CRITICAL, NOW)], PutMode.FRESH)
    both.take(0, None, limit=1, later=0, in_turn=False, old=False)
    both.teardown()


def test_a_job_that_is_handed_out_again_keeps_the_place_that_it_also_has(machine: type[Both]) -> None:
    both = machine()
    both.begin()
    both.put(0, [Place("id0", "b", Lane.REALTIME, Priority.HIGH, NOW)], PutMode.MOVED)
    both.take(0, None, limit=1, later=0, in_turn=False, old=False)
    both.put(0, [Place("id0", "b", Lane.REALTIME, Priority.HIGH, NOW)], PutMode.FRESH)
    both.take(0, None, limit=1, later=20, in_turn=False, old=True)
    both.teardown()
