"""demora's pytest plugin, outside of the package: projects that use no fixture of it import nothing more."""

import pkgutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from demora import Demora
    from demora.testing import Sandbox

_WHICH = "which application? Set `demora_app = module:app` in the settings of pytest, or override the fixture demora_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("demora_app", "the demora application under test, as module:app")


@pytest.fixture
def demora_app(request: pytest.FixtureRequest) -> "Demora":
    """The application under test, unless you override this fixture: what the setting `demora_app` names, or the default task
    backend of Django. A `FlaskDemora` stands for the jobs of the fixture `app`, or of the only application of Flask."""
    name = request.config.getini("demora_app")
    app = _named(request, name) if name else _of_django()
    if app is None:
        pytest.fail(_WHICH, pytrace=False)
    return app


@pytest.fixture
def demora_sandbox(demora_app: "Demora") -> "Iterator[Sandbox]":
    """The application with its jobs in memory, a clock to turn, and a worker that runs what is due when told to."""
    from demora.testing import Sandbox

    with Sandbox(demora_app) as sandbox:
        yield sandbox


def _named(request: pytest.FixtureRequest, name: str) -> "Demora":
    from demora import Demora

    found: Any = pkgutil.resolve_name(name)
    if isinstance(found, Demora):
        return found
    app: Demora = found.of(_fixture(request, "app"))
    return app


def _fixture(request: pytest.FixtureRequest, name: str) -> Any:
    """Return the value of a fixture, None if there is none of this name."""
    try:
        return request.getfixturevalue(name)
    except pytest.FixtureLookupError as problem:
        if problem.argname != name:
            raise
        return None


def _of_django() -> "Demora | None":
    """Return the application of Django's default task backend; None without Django, or if that backend is another one."""
    registry = sys.modules.get("django.apps")
    if registry is None or not registry.apps.ready:
        return None
    from demora.contrib.django.applications import aliases, application, usual_alias

    return application(usual_alias()) if aliases() else None
