"""Where an application can be imported from. A child process imports it again to find its handlers."""

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import msgspec

from ...errors import BadHandler, WrongProcess
from ...handlers.registry import Handler

_SCRIPT = "__demora_main__"  # not `__main__`, so that the block below `if __name__ == "__main__"` does not run
_workers_allowed = True


class ImportPath(msgspec.Struct, frozen=True):
    """How a module can be imported: by its name, or as a script by its file."""

    module: str
    file: str | None = None


class AppLocation(msgspec.Struct, frozen=True):
    """The module and the name that hold an application. The other modules that hold it may register handlers."""

    path: ImportPath
    name: str
    others: tuple[ImportPath, ...] = ()


def location_of(app: object, handler: Handler) -> AppLocation:
    """Return where the application of a process handler can be imported from; `BadHandler` if no import would find it."""
    found = [(path, name) for module, name in _holders(app) if (path := _import_path(module)) is not None]
    if not found:
        raise BadHandler(
            handler.type,
            "its process imports the application, and no import finds this one; write app = Demora() at the top of a "
            "module or script (an application made at a prompt or in a function cannot be imported)",
        )
    (path, name), *others = found
    return AppLocation(path, name, tuple(other for other, _ in others))


def import_path_of(handler: Handler) -> ImportPath:
    """Return where the function of a handler was defined."""
    name = handler.function.__module__
    return _import_path(name) or ImportPath(name)


def find(app: Any, location: AppLocation, path: ImportPath, type: str) -> Handler:
    """Return the handler for a type. Imports the modules that may register it, until one does; `BadHandler` if none does."""
    for one in (location.path, path, *location.others):
        load(one)
        if (handler := app.registry.get(type)) is not None:
            assert isinstance(handler, Handler)
            return handler
    raise BadHandler(type, f"importing {path.file or path.module} does not register it; do so at the top of a module")


def load(path: ImportPath) -> ModuleType:
    """Import a module or script, once. A script gets another name than `__main__`."""
    if path.file is None:
        return importlib.import_module(path.module)
    if _SCRIPT not in sys.modules:
        spec = importlib.util.spec_from_file_location(_SCRIPT, path.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path.file} cannot be imported", path=path.file)
        sys.modules[_SCRIPT] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[_SCRIPT])
        except BaseException:
            del sys.modules[_SCRIPT]
            raise
    return sys.modules[_SCRIPT]


def keep_workers_out() -> None:
    """Refuse to start workers in this process from now on."""
    global _workers_allowed
    _workers_allowed = False


def expect_worker() -> None:
    """Raise `WrongProcess` in a process that only calls handlers. Otherwise a script that starts a worker would start
    processes without end."""
    if not _workers_allowed:
        raise WrongProcess


def _holders(app: object) -> list[tuple[str, str]]:
    """Return the modules and names that hold the application, in the order of their import, so that another process imports
    them in the same order. A module that was run as a script comes last."""
    modules = {module.__name__: module for module in list(sys.modules.values()) if isinstance(module, ModuleType)}
    held = [(name, key) for name, module in modules.items() for key, value in list(vars(module).items()) if value is app]
    return sorted(held, key=lambda one: one[0] == "__main__")


def _import_path(module: str) -> ImportPath | None:
    """Return how another process can import a module of this one; None if it cannot."""
    if module != "__main__":
        return ImportPath(module)
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return ImportPath(spec.name)
    file = getattr(main, "__file__", None)
    return ImportPath("__main__", file) if file is not None and os.path.isfile(file) else None
