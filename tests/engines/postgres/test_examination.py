"""What the doctor is told of a server, and what a store notes of its wake-ups."""

import re
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from demora import Demora
from demora.engines.postgres import PostgresOptions, PostgresStore, diagnostics, notifier
from demora.engines.postgres.connection import migrating
from demora.engines.sql.steps import SchemaStep
from demora.store.diagnostics import Finding
from demora.store.jobs import Topic
from tests.facts import eventually


@dataclass
class Place:
    """A schema on a server, which may not have been made yet."""

    url: str
    schema: str

    async def migrate(self) -> None:
        await migrating.migrate(self.url, PostgresOptions(schema=self.schema))

    async def set_version(self, version: int) -> None:
        connection = await asyncpg.connect(self.url)
        records = "('version', 'schema.oldest')"
        await connection.execute(f"update {self.schema}.meta set value = '{version}' where name in {records}")
        await connection.close()

    async def findings(self, **options: Any) -> dict[str, Finding]:
        examined = await diagnostics.examine(self.url, PostgresOptions(schema=self.schema, **options))
        self.usable = examined.usable
        return {found.check: found for found in examined.findings}


@pytest.fixture
def place(url: str, schema: str) -> Place:
    return Place(url, schema)


async def test_a_server_with_the_schema_of_this_demora_is_well(place: Place) -> None:
    await place.migrate()
    found = await place.findings()
    assert {check: one.level for check, one in found.items()} == dict.fromkeys(
        ["postgresql", "database", "schema", "clocks", "wake-ups"], "ok"
    )
    assert place.usable
    assert "as user demora" in found["database"].fact
    agree = re.fullmatch(r"this host and the server agree to within (\d+) ms", found["clocks"].fact)
    assert agree is not None
    assert int(agree[1]) < 60_000


async def test_a_server_that_does_not_answer_is_a_problem_and_no_password_is_told(schema: str) -> None:
    place = Place("postgresql://nobody:hidden@127.0.0.1:1/none", schema)
    found = await place.findings()
    assert (found["database"].level, place.usable) == ("problem", False)
    assert "hidden" not in str(found)


async def test_a_schema_that_is_not_there_is_a_problem_and_is_not_made(place: Place) -> None:
    assert (await place.findings())["schema"].level == "problem"
    assert not place.usable
    assert await migrating.stored_version(place.url, PostgresOptions(schema=place.schema)) is None


@pytest.mark.parametrize(("version", "level"), [(1, "warning"), (999, "problem")])
async def test_a_schema_of_another_demora_is_told_and_not_used(place: Place, version: int, level: str) -> None:
    await place.migrate()
    await place.set_version(version)
    assert (await place.findings())["schema"].level == level
    assert not place.usable


async def test_a_newer_schema_that_this_demora_may_use_is_well(place: Place) -> None:
    newer = SchemaStep(migrating.newest() + 1, "-- online\nselect 1")
    await migrating.migrate(place.url, PostgresOptions(schema=place.schema), [*migrating.schema_steps(place.schema), newer])
    assert "which this demora may use" in (await place.findings())["schema"].fact
    assert place.usable


async def test_a_server_that_is_too_old_is_a_problem(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "OLDEST", 1000)
    assert (await place.findings())["postgresql"].level == "problem"


@pytest.mark.parametrize("ahead", [60, -60])
async def test_clocks_that_are_apart_are_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    real = time.time
    monkeypatch.setattr(diagnostics.time, "time", lambda: real() + ahead)
    clock = (await place.findings())["clocks"]
    assert clock.level == "warning"
    assert any(f"{apart} s apart" in clock.fact for apart in ("59.9", "60.0", "60.1"))


async def test_where_nobody_listens_that_is_told_and_no_fault(place: Place) -> None:
    for options in ({"notify": False}, {"pooler": True}):
        found = (await place.findings(**options))["wake-ups"]
        assert (found.level, "every 250 ms" in found.fact) == ("ok", True)


async def test_an_address_on_which_no_ring_is_heard_is_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "WAKE_UP_LIMIT", 0.3)
    elsewhere = place.url.replace("/postgres", "/template1")
    for listen_url in (elsewhere, "postgresql://127.0.0.1:1/none"):
        found = (await place.findings(pooler=True, listen_url=listen_url))["wake-ups"]
        assert (found.level, found.fact) == ("warning", notifier.UNHEARD)


@pytest.mark.parametrize("options", [{"notify": False}, {"pooler": True}], ids=lambda options: next(iter(options)))
async def test_health_notes_that_idle_workers_look_and_stays_healthy(place: Place, options: dict[str, Any]) -> None:
    store = PostgresStore(place.url, PostgresOptions(schema=place.schema, connections=2, **options))
    async with Demora(store=store) as app, app.worker():
        client = await app.open()
        health = await eventually(client.health, lambda health: health.workers)
        assert (health.status, health.reason) == ("healthy", None)
        assert ["every 250 ms" in note for note in health.notes] == [True]


async def test_there_is_nothing_to_note_where_rings_are_heard(place: Place) -> None:
    store = PostgresStore(place.url, PostgresOptions(schema=place.schema, connections=2))
    async with Demora(store=store) as app, app.worker():
        client = await app.open()
        assert (await eventually(client.health, lambda health: health.workers)).notes == ()


async def test_a_listener_that_cannot_connect_is_noted(place: Place) -> None:
    options = PostgresOptions(schema=place.schema, connections=2, listen_url="postgresql://127.0.0.1:1/none")
    store = PostgresStore(place.url, options)
    await store.open()
    assert store.diagnostics.notes() == ()
    with store.subscribe(Topic.READY):
        await store.queues()
        assert store.diagnostics.notes() == (notifier.UNHEARD,)
    await store.close()
