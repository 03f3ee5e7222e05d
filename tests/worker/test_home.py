"""Where an application is found again by a process that imports it."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from demora import Demora
from demora.errors import BadHandler
from demora.worker.processes.location import AppLocation, ImportPath, find, import_path_of, location_of
from tests.worker import more_process_jobs, process_jobs

HERE = ImportPath("tests.worker.process_jobs")


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What was started: it holds an application with a process handler."""
    main = ModuleType("__main__")
    main.app = Demora()  # type: ignore[attr-defined]
    main.app.job("mine", process=True)(process_jobs.pid)  # type: ignore[attr-defined]
    for name in ("__main__", "__mp_main__"):  # multiprocessing gives it a second name
        monkeypatch.setitem(sys.modules, name, main)
    return main


def home_in(main: ModuleType) -> AppLocation:
    return location_of(main.app, main.app.registry.get("mine"))


def test_a_script_is_found_by_its_file(main: ModuleType, tmp_path: Path) -> None:
    main.__file__ = str(tmp_path / "script.py")
    Path(main.__file__).touch()
    assert home_in(main) == AppLocation(ImportPath("__main__", main.__file__), "app")


def test_a_module_that_was_run_is_found_by_its_name(main: ModuleType) -> None:
    main.__spec__ = ModuleSpec("shop.__main__", None)
    assert home_in(main) == AppLocation(ImportPath("shop.__main__"), "app")


@pytest.mark.parametrize("file", [None, "<stdin>"])
def test_what_was_typed_at_a_prompt_is_not_found(main: ModuleType, file: str | None) -> None:
    main.__file__ = file  # type: ignore[assignment]
    with pytest.raises(BadHandler, match="handler for 'mine': its process imports the application"):
        home_in(main)


def test_a_module_comes_before_the_script_that_imports_it(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main.__file__ = str(tmp_path / "script.py")
    Path(main.__file__).touch()
    shop = ModuleType("shop")
    shop.jobs = main.app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", shop)
    assert home_in(main) == AppLocation(ImportPath("shop"), "jobs", (ImportPath("__main__", main.__file__),))


def test_a_handler_is_looked_for_in_the_home_in_its_own_module_and_in_the_others() -> None:
    home = AppLocation(HERE, "app", (ImportPath("tests.worker.more_process_jobs"),))
    handler = find(process_jobs.app, home, HERE, "elsewhere")
    assert import_path_of(handler) == ImportPath(more_process_jobs.__name__)
    with pytest.raises(BadHandler, match=r"importing tests\.worker\.process_jobs does not register it"):
        find(process_jobs.app, home, HERE, "nowhere")
