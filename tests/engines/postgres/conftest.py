"""Stores on PostgreSQL to look at from outside, each in a schema of its own."""

import secrets
from collections.abc import AsyncIterator

import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore
from tests.clock import TestClock
from tests.setups import postgres_url


@pytest.fixture
def url() -> str:
    return postgres_url()


@pytest.fixture
def schema() -> str:
    return f"t_{secrets.token_hex(6)}"


@pytest.fixture
async def store(url: str, schema: str, clock: TestClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=2), clock=clock)
    await store.open()
    yield store
    await store.close()
