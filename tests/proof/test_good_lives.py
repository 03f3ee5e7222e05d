"""Whatever is done to an audited store, the checker finds nothing to object to; but it misses an event that is left out."""

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demora.proof import HistoryEvent, check
from demora.store.audit import Evidence
from tests.proof.driving import VERBS, Driver
from tests.setups import postgres_store

STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 9), st.integers(0, 9)), min_size=5, max_size=60)
MOVING = STEPS.map(lambda steps: [("add", 1, 0), ("claim", 2, 0), *steps])  # a job that is claimed has moved
LIVES = itertools.count()
unhurried = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


async def live(
    steps: list[tuple[str, int, int]], *, drain: bool = False, driver: Driver | None = None
) -> tuple[list[HistoryEvent], Evidence]:
    driver = driver or Driver()
    await driver.store.open()
    try:
        for verb, n, m in steps:
            await getattr(driver, verb)(n, m)
        if drain:
            await driver.drain()
        return driver.history, await driver.store.audit.evidence()
    finally:
        await driver.store.close()


@unhurried
@given(STEPS)
def test_any_life_that_a_store_leads_is_accepted(steps: list[tuple[str, int, int]]) -> None:
    history, evidence = asyncio.run(live(steps))
    findings = check(history, evidence)
    assert findings.ok, findings.explain()


@unhurried
@given(STEPS)
def test_any_life_that_is_led_to_its_end_is_accepted(steps: list[tuple[str, int, int]]) -> None:
    history, evidence = asyncio.run(live(steps, drain=True))
    findings = check(history, evidence)
    assert findings.ok, findings.explain()
    assert "drained" in findings.judged.get("I1", "drained")


@pytest.mark.slow
@settings(unhurried, max_examples=15)
@given(STEPS)
def test_any_life_on_postgresql_that_is_led_to_its_end_is_accepted(steps: list[tuple[str, int, int]]) -> None:
    place = Path(f"life-{next(LIVES)}")
    driver = Driver(lambda clock: postgres_store(place, clock, audit=True))
    history, evidence = asyncio.run(live(steps, drain=True, driver=driver))
    findings = check(history, evidence)
    assert findings.ok, findings.explain()


@pytest.mark.slow
@unhurried
@given(MOVING, st.integers(0, 10_000))
def test_an_event_that_is_missing_is_missed(steps: list[tuple[str, int, int]], which: int) -> None:
    history, evidence = asyncio.run(live(steps))
    steps_left = [event for event in evidence.events or [] if event.kind not in ("accepted", "stale")]
    moves = [event for event in steps_left if event.old_status is not None and event.old_status != event.status]
    lost = moves[which % len(moves)]
    rest = [event for event in evidence.events or [] if event is not lost]
    assert not check([*history, *rest], evidence).ok
