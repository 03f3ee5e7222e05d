"""Schedules in code: added, updated, kept where a person changed them, and retired."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.schedules.definitions import (
    Defined,
    Definition,
    Known,
    Registered,
    Result,
    bring_in,
    changed_fields,
    is_older,
)
from demora.core.schedules.schedule import Schedule

FIRST = datetime(2026, 1, 15, 12, tzinfo=UTC)
LATER = FIRST + timedelta(days=1)


def schedule(name: str = "nightly", **changes: Any) -> Schedule:
    fields = {"type": "report.build", "payload": b"{}", "recorded_at": FIRST, "cron": "0 3 * * *", **changes}
    return Schedule(name=name, **fields)


def definition(*schedules: Schedule, app_version: str | None = None, application: str = "shop") -> Definition:
    return Definition(application, "worker-1", schedules, app_version)


def known(current: Schedule | None = None, app_version: str | None = None, **changes: Any) -> Known:
    """A schedule that the shop defined, and that a person changed."""
    defined = current or schedule()
    return Known(msgspec.structs.replace(defined, **changes), defined, "shop", app_version)


def brought(now: Definition, stored: Known | None = None, *elsewhere: Registered) -> Defined:
    [result] = bring_in(now, {} if stored is None else {stored.schedule.name: stored}, elsewhere)
    return result


def test_a_new_name_is_added() -> None:
    asked = schedule()
    assert brought(definition(asked, app_version="1")) == Defined(
        "nightly", Result.ADDED, Known(asked, asked, "shop", "1"), restarts=True
    )


def test_the_same_code_changes_nothing() -> None:
    assert brought(definition(schedule(recorded_at=LATER)), known()) == Defined("nightly", Result.SAME)


def test_new_code_is_taken_over_and_an_interval_keeps_its_beat() -> None:
    before = known(schedule(cron=None, every=timedelta(hours=1)))
    after = brought(definition(schedule(cron=None, every=timedelta(hours=2), recorded_at=LATER)), before)
    assert (after.result, after.restarts) == (Result.UPDATED, True)
    assert after.known is not None
    assert after.known.schedule == after.known.defined
    assert (after.known.schedule.every, after.known.schedule.recorded_at) == (timedelta(hours=2), FIRST)


def test_a_deploy_that_leaves_the_timing_alone_keeps_the_progress() -> None:
    for changes in ({}, {"payload": b'{"a":1}'}, {"queue": "reports"}):
        after = brought(definition(schedule(**changes), app_version="2"), known(app_version="1"))
        assert (after.result, after.restarts) == (Result.UPDATED, False)


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"queue": "slow"}, ("queue",)),
        ({"cron": "0 4 * * *"}, ("cron", "every", "at", "timezone")),
        ({"enabled": False, "reason": "broken"}, ("enabled", "reason")),
    ],
)
def test_what_a_person_changed_is_kept_and_the_rest_follows_the_code(changes: dict[str, Any], kept: tuple[str, ...]) -> None:
    stored = known(**changes)
    after = brought(definition(schedule(cron="0 5 * * *", queue="fast", payload=b'{"new":1}')), stored)
    assert after.known is not None
    assert after.kept == kept
    for name in kept:
        assert getattr(after.known.schedule, name) == getattr(stored.schedule, name)
    assert after.known.schedule.payload == b'{"new":1}'
    assert after.known.defined == schedule(cron="0 5 * * *", queue="fast", payload=b'{"new":1}')
    assert changed_fields(after.known.schedule, after.known.defined) == kept


def test_a_name_of_a_person_or_of_another_application_stays_theirs() -> None:
    assert brought(definition(schedule()), Known(schedule(queue="mine"))).result is Result.TAKEN
    assert brought(definition(schedule(), application="other"), known()).result is Result.TAKEN


# Schedules whose last time has passed


def over(schedule: Schedule) -> Definition:
    return Definition("shop", "worker-1", (), over=(schedule,))


def test_a_schedule_that_is_over_is_not_added() -> None:
    assert brought(over(schedule(end_at=FIRST))) == Defined("nightly", Result.OVER)


def test_a_stored_schedule_that_is_over_is_not_retired_and_keeps_its_progress() -> None:
    stored = known(schedule(end_at=LATER))
    assert brought(over(schedule(end_at=LATER, recorded_at=LATER)), stored) == Defined("nightly", Result.SAME)
    after = brought(over(schedule(end_at=LATER, queue="reports")), stored)
    assert (after.result, after.restarts) == (Result.UPDATED, False)


def test_code_that_ends_a_schedule_in_the_past_ends_the_stored_one() -> None:
    after = brought(over(schedule(end_at=FIRST)), known())
    assert after.known is not None
    assert (after.known.schedule.end_at, after.restarts) == (FIRST, True)


# Releases


def test_the_highest_version_wins_and_without_one_the_last_start() -> None:
    code = schedule(queue="new")
    newer, older = Registered(("nightly",), "1.10"), Registered(("nightly",), "1.8")
    assert brought(definition(code, app_version="1.9"), known(app_version="1.10"), older, newer).result is Result.OLDER
    assert brought(definition(code, app_version="1.10"), known(app_version="1.9")).result is Result.UPDATED
    assert brought(definition(code), known(app_version="1.9")).result is Result.UPDATED
    assert brought(definition(code, app_version="1.9"), known()).result is Result.UPDATED


def test_a_version_that_no_live_process_runs_does_not_count() -> None:
    live = (Registered(("nightly",), "1.9"), Registered(("nightly",), None), Registered(("nightly",), "1.8"))
    after = brought(definition(schedule(queue="old"), app_version="1.9"), known(app_version="1.10"), *live)
    assert after.known is not None
    assert (after.result, after.known.app_version, after.known.schedule.queue) == (Result.UPDATED, "1.9", "old")
    assert brought(definition(app_version="1.9"), known(app_version="1.10")).result is Result.RETIRED


@given(st.lists(st.text("0123456789.-abv", max_size=6), min_size=2, max_size=3))
def test_versions_have_an_order(versions: list[str]) -> None:
    one, other, *_ = versions
    assert not is_older(one, one)
    assert not (is_older(one, other) and is_older(other, one))
    assert not is_older(None, one)
    assert not is_older(one, None)


# Retiring


def test_a_schedule_that_the_code_no_longer_names_is_retired() -> None:
    assert brought(definition(), known()).result is Result.RETIRED


def test_another_live_process_that_registers_it_prevents_that() -> None:
    assert brought(definition(), known(), Registered(("nightly",))).result is Result.PENDING


def test_an_older_version_and_another_application_retire_nothing() -> None:
    assert brought(definition(app_version="1"), known(app_version="2"), Registered((), "2")).result is Result.OLDER
    assert bring_in(definition(application="other"), {"nightly": known()}, ()) == []
    assert bring_in(definition(), {"nightly": Known(schedule())}, ()) == []
