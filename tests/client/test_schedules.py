"""Schedules from Python: in code, by the client, and in the blocking face."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from demora import Context, Demora
from demora.client import schedules as client_schedules
from demora.client.schedules import changed_by_person, make_schedule_request
from demora.core.job import Priority
from demora.engines.sqlite import SqliteStore
from demora.errors import BadHandler, Invalid, ScheduleNotFound, ScheduleTaken
from demora.store.schedules import Origin
from tests.clock import TestClock
from tests.facts import eventually

HOUR = timedelta(hours=1)


@pytest.fixture
def app() -> Demora:
    return Demora(store=SqliteStore())


def with_handler(app: Demora, **options: Any) -> Any:
    @app.job("report.build", **options)
    async def build(ctx: Context, day: str = "today") -> str:
        return f"{ctx.schedule.name} {day}" if ctx.schedule is not None else day

    return build


async def test_every_above_a_handler_defines_a_schedule_when_a_worker_starts(app: Demora) -> None:
    app.every("0 3 * * *", tz="Europe/Madrid")(with_handler(app, queue="reports", priority="HIGH", max_retries=7))
    async with app, app.worker():
        [found] = await (await app.open()).schedules()
    schedule = found.schedule
    assert (schedule.name, schedule.type, schedule.cron) == ("report.build", "report.build", "0 3 * * *")
    assert (schedule.timezone, schedule.queue, schedule.priority) == ("Europe/Madrid", "reports", Priority.HIGH)
    assert (schedule.max_retries, found.origin, found.application) == (7, Origin.CODE, __name__)


@pytest.mark.parametrize("when", ["90s", timedelta(seconds=90)])
async def test_every_takes_an_interval(app: Demora, when: Any) -> None:
    app.every(when, payload={"day": "monday"})(with_handler(app))
    async with app:
        await app.define_schedules("one")
        found = await (await app.open()).schedule("report.build")
    assert (found.schedule.every, found.schedule.payload) == (timedelta(seconds=90), b'{"day":"monday"}')


async def test_a_handler_gets_the_schedule_and_the_fire_time_of_its_job(app: Demora) -> None:
    app.every("1s")(with_handler(app))
    async with app, app.worker():
        client = await app.open()
        page = await eventually(lambda: app.find(status="COMPLETED"), lambda page: page.jobs)
        found = await client.schedule("report.build")
    assert page.jobs[0].result == "report.build today"
    assert (page.jobs[0].slot_at - found.schedule.recorded_at) % timedelta(seconds=1) == timedelta(0)


def test_every_stands_above_a_registered_handler(app: Demora) -> None:
    with pytest.raises(BadHandler, match=r"stands above @app\.job"):

        @app.every("90s")
        async def tick() -> None: ...


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "@daily", "tz": "Europe/Madird"}, "timezone"),
        ({"every": "0.5s"}, "every"),
        ({"every": "90s", "corn": "@daily"}, "corn"),
        ({}, "cron"),
    ],
)
def test_a_wrong_definition_is_refused_where_it_stands(app: Demora, values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        app.schedule("nightly", "report.build", **values)
    assert refused.value.field == field


def test_a_name_stands_once_in_the_code(app: Demora) -> None:
    app.schedule("nightly", "report.build", every="90s")
    with pytest.raises(Invalid, match="give this one another name"):
        app.schedule("nightly", "report.build", cron="@daily")


async def test_a_definition_whose_payload_does_not_fit_is_refused_at_the_start(app: Demora) -> None:
    with_handler(app)
    app.schedule("nightly", "report.build", every="90s", payload={"day": 7})
    async with app:
        with pytest.raises(Invalid, match=r"payload\.day"):
            await app.define_schedules("one")
        assert await (await app.open()).schedules() == []


async def test_a_definition_that_is_over_keeps_no_process_from_starting(
    app: Demora, caplog: pytest.LogCaptureFixture
) -> None:
    app.schedule("sale", "report.build", cron="@daily", end_at=datetime(2020, 1, 1, tzinfo=UTC))
    app.schedule("party", "report.build", at=[datetime(2020, 1, 1, tzinfo=UTC)])
    with caplog.at_level(logging.WARNING):
        async with app:
            assert not await app.define_schedules("one")
            assert await (await app.open()).schedules() == []
    assert [record.facts["name"] for record in caplog.records] == ["sale", "party"]  # type: ignore[attr-defined]


async def test_the_last_run_of_a_schedule_in_code_is_not_lost_while_all_processes_restart(
    app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = datetime.now(UTC) + HOUR
    app.schedule("party", "demo.echo", at=[party], payload={"song": 7})
    app.schedule("sale", "demo.echo", every="20m", end_at=party)
    async with app:
        client = await app.open()
        await app.define_schedules("one")
        before = await client.schedules()
        monkeypatch.setattr(client_schedules, "_now", lambda: party + timedelta(seconds=1))
        await app.define_schedules("two")
        assert await client.schedules() == before


async def test_going_back_to_an_earlier_version_takes_effect_once_the_later_one_has_ended(
    clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(clock=clock)
    app = Demora(store=store)
    caplog.set_level(logging.INFO)
    async with app:
        client = await app.open()

        async def define(version: str, cron: str) -> bool:
            request = make_schedule_request({"type": "demo.echo", "cron": cron})
            return await client.define_schedules("shop", version, {"nightly": request}, app_version=version)

        await store.schedules.attend("1.10")
        assert not await define("1.10", "0 3 * * *")
        assert await define("1.9", "0 4 * * *")
        assert await define("1.9", "0 4 * * *")
        assert [record.message for record in caplog.records if "newer version" in record.message] == [
            "schedule nightly stays as a newer version has defined it, while processes of that version run"
        ]
        clock.turn(60)
        assert not await define("1.9", "0 4 * * *")
        assert (await client.schedule("nightly")).schedule.cron == "0 4 * * *"


async def test_what_a_person_changed_is_shown_as_changed(app: Demora) -> None:
    app.schedule("nightly", "report.build", cron="0 3 * * *")
    async with app:
        client = await app.open()
        await app.define_schedules("one")
        await client.change_schedule("nightly", by="ann", cron="0 4 * * *")
        await app.define_schedules("two")
        found = await client.schedule("nightly")
    assert (found.schedule.cron, found.changed_by) == ("0 4 * * *", "ann")
    assert "cron" in changed_by_person(found)


async def test_the_client_refuses_what_it_cannot_find_or_store(app: Demora) -> None:
    async with app:
        client = await app.open()
        await client.add_schedule("nightly", "report.build", cron="@daily")
        with pytest.raises(ScheduleTaken):
            await client.add_schedule("nightly", "report.build", cron="@daily")
        for asked in (
            client.schedule("none"),
            client.change_schedule("none", every="90s"),
            client.pause_schedule("none"),
            client.resume_schedule("none"),
            client.trigger_schedule("none"),
            client.remove_schedule("none"),
            client.next_runs("none"),
            client.schedule_jobs("none"),
            client.fire_records("none"),
            client.backfill_schedule("none", datetime.now(UTC) - HOUR, datetime.now(UTC)),
        ):
            with pytest.raises(ScheduleNotFound):
                await asked


async def test_a_backfill_adds_what_its_dry_run_shows(app: Demora) -> None:
    async with app:
        client = await app.open()
        await client.add_schedule("hourly", "report.build", cron="@hourly")
        now = datetime.now(UTC)
        first, last = now - 5 * HOUR, now - 2 * HOUR
        shown = await client.backfill_schedule("hourly", first, last, dry_run=True)
        assert (await client.schedule_jobs("hourly")).jobs == []
        with pytest.raises(Invalid, match="cursor"):
            await client.schedule_jobs("hourly", after="201")
        done = await client.backfill_schedule("hourly", first, last, spread="1h")
        assert done == shown
        jobs = (await client.schedule_jobs("hourly")).jobs
        assert sorted(job.slot_at for job in jobs if job.slot_at is not None) == done.added
        again = await client.backfill_schedule("hourly", first, last)
        assert (again.added, again.had) == ([], done.added)


def test_the_blocking_face_has_schedules(tmp_path: Path) -> None:
    app = Demora(f"sqlite:///{tmp_path}/jobs.db")
    with app.blocking as blocking:
        blocking.add_schedule("nightly", "report.build", cron="@daily")
        assert len(blocking.next_runs("nightly", 3)) == 3
        assert blocking.trigger_schedule("nightly").schedule_name == "nightly"
