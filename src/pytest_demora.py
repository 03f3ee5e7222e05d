"""demora's pytest plugin, outside of the package: projects that use no fixture of it import nothing more."""

import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from demora import Demora
    from demora.testing import Sandbox

_WHICH = "which application? Set `demora_app = module:app` in the settings of pytest, or override the fixture demora_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("demora_app", "the demora application under test, as module:app")


@pytest.fixture
def demora_app(pytestconfig: pytest.Config) -> "Demora":
    """The application under test: what the setting `demora_app` names, unless you override this fixture."""
    name = pytestconfig.getini("demora_app")
    if not name:
        pytest.fail(_WHICH, pytrace=False)
    app: Demora = pkgutil.resolve_name(name)
    return app


@pytest.fixture
def demora_sandbox(demora_app: "Demora") -> "Iterator[Sandbox]":
    """The application with its jobs in memory, a clock to turn, and a worker that runs what is due when told to."""
    from demora.testing import Sandbox

    with Sandbox(demora_app) as sandbox:
        yield sandbox
