"""Sets Django up for the suite, and creates its only table."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import django
import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
django.setup()

from django.db import connection  # noqa: E402
from shop import tasks  # noqa: E402
from shop.models import Order  # noqa: E402

from demora.contrib.django.applications import TasksApplication, application  # noqa: E402
from demora.testing import Sandbox  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def table() -> Iterator[None]:
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(Order)
    connection.close()


@pytest.fixture(autouse=True)
def fresh() -> None:
    tasks.seen.clear()
    Order.objects.all().delete()


@pytest.fixture
def sandboxes() -> Iterator[dict[str, Sandbox]]:
    """The jobs of all our backends in memory."""
    with ExitStack() as stack:
        aliases = ("default", "retrying", "at_once", "after")
        yield {alias: stack.enter_context(Sandbox(application(alias))) for alias in aliases}


@pytest.fixture
def drain(sandboxes: dict[str, Sandbox]) -> Callable[..., Any]:
    """Run all due jobs, also those that are due after some time."""

    def drain(after: str = "0s") -> None:
        for sandbox in sandboxes.values():
            sandbox.blocking.advance(after)

    return drain


@pytest.fixture
def app() -> TasksApplication:
    return application("default")
