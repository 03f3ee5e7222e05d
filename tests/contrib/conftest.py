"""The databases that examples run on, and a FastAPI application."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demora.contrib.fastapi import add_job_routes
from tests import setups
from tests.contrib.sites import Site

collect_ignore = ["django_suite"]  # `test_django.py` runs it in processes of its own
SQLITE, POSTGRES = "sqlite", "postgres+line"


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The settings of a database, as environment: a new SQLite file, or an empty schema on this run's servers."""
    if request.param == SQLITE:
        return {"DEMORA_DATABASE_URL": f"sqlite:///{tmp_path / 'jobs.db'}"}
    schema = "e" + "".join(letter for letter in tmp_path.name.lower() if letter.isalnum())[-40:]
    return {
        "DEMORA_DATABASE_URL": setups.postgres_url(),
        "DEMORA_DATABASE_SCHEMA": schema,
        "DEMORA_REDIS_URL": setups.redis_url(),
    }


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A site whose lifespan is open, with a worker beside it."""
    site = Site()
    add_job_routes(site.web, site.jobs)
    async with site.http, site.web.router.lifespan_context(site.web), site.jobs.worker():
        yield site
