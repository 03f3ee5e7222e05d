"""Where jobs wait in very many queues, or many are parked, claims look for due jobs by their types at once."""

from typing import Any

import pytest

from demora.engines.postgres import PostgresStore
from demora.engines.postgres.connection.connections import Session
from demora.engines.postgres.jobs import runs
from tests.builders import add_ids, claim, claim_ids, new_job, seconds

MANY, DUE, CLAIMS = 10, 20, 4
TYPES = frozenset({new_job().type})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of claims. A claim takes few heads for many, few due jobs for many, and soon counts again."""
    for name, value in (("MANY_HEADS", MANY), ("MOST_DUE", DUE), ("UNCOUNTED", CLAIMS)):
        monkeypatch.setattr(runs, name, value)
    names: list[str] = []
    rows = Session.rows

    async def noted(self: Session, statement: str, **what: Any) -> list[Any]:
        if statement.startswith("claim"):
            names.append(statement)
        return await rows(self, statement, **what)

    monkeypatch.setattr(Session, "rows", noted)
    return names


@pytest.fixture
async def crowded(store: PostgresStore, asked: list[str]) -> PostgresStore:
    """A store with a delayed job in each of many queues, which a claim has met."""
    await store.add([new_job(queue=f"q{n}", delay=seconds(3600)) for n in range(MANY + 1)])
    await claim(store, types=TYPES)
    assert asked == ["claim", "claim_of_types"]
    asked.clear()
    return store


async def test_the_claims_after_one_that_met_many_queues_look_for_due_jobs_at_once(
    crowded: PostgresStore, asked: list[str]
) -> None:
    ids = await add_ids(crowded, *[{}] * CLAIMS)
    assert [(await claim_ids(crowded, 1, types=TYPES))[0] for _ in range(CLAIMS - 1)] == ids[:-1]
    assert asked == ["claim_of_types"] * (CLAIMS - 1)
    assert await claim_ids(crowded, 1, types=TYPES) == ids[-1:]
    assert asked[CLAIMS - 1 :] == ["claim", "claim_of_types"]  # it has counted the queues again


async def test_a_claim_that_meets_many_due_jobs_has_the_next_one_count_the_queues(
    crowded: PostgresStore, asked: list[str]
) -> None:
    await add_ids(crowded, *[{}] * (DUE + 2))
    await claim(crowded, types=TYPES)
    assert asked == ["claim_of_types", "claim"]
    await claim(crowded, types=TYPES)
    assert asked[2:4] == ["claim", "claim_of_types"]


@pytest.fixture
async def parked(store: PostgresStore, asked: list[str]) -> PostgresStore:
    """A store whose claims have parked a job of another type, and found no other one."""
    await store.add([new_job(type="unknown")])
    assert (await claim(store, types=TYPES)).parked == {"unknown"}
    assert set(asked) == {"claim"}
    asked.clear()
    return store


@pytest.mark.parametrize("queues", [None, [new_job().queue]])
async def test_the_claims_after_one_that_met_parked_jobs_look_for_due_jobs_at_once(
    parked: PostgresStore, asked: list[str], queues: list[str] | None
) -> None:
    ids = await add_ids(parked, *[{}] * CLAIMS)
    assert [(await claim_ids(parked, 1, types=TYPES, queues=queues))[0] for _ in range(CLAIMS)] == ids
    assert asked == ["claim_of_types"] * (CLAIMS - 1) + ["claim" if queues is None else "claim_of_queues"]


async def test_a_claim_of_very_many_types_beside_parked_jobs_looks_at_every_queue(
    parked: PostgresStore, asked: list[str]
) -> None:
    ids = await add_ids(parked, {})
    assert await claim_ids(parked, 1, types=TYPES | {f"t{n}" for n in range(runs.FEW_TYPES)}) == ids
    assert asked == ["claim"]


async def test_a_claim_beside_parked_jobs_that_finds_no_due_job_parks_those_of_other_types(
    parked: PostgresStore, asked: list[str]
) -> None:
    await parked.add([new_job(type="another")])
    assert (await claim(parked, types=TYPES)).parked == {"another"}
    assert asked[:2] == ["claim_of_types", "claim"]


async def test_a_claim_beside_parked_jobs_that_meets_many_due_jobs_has_the_next_one_look_at_every_queue(
    parked: PostgresStore, asked: list[str]
) -> None:
    ids = await add_ids(parked, *[{}] * (DUE + runs.MARGIN))
    assert await claim_ids(parked, 1, types=TYPES) == ids[:1]
    assert asked == ["claim_of_types", "claim"]
    assert await claim_ids(parked, 1, types=TYPES) == ids[1:2]
    assert asked[2:] == ["claim"]
