"""Where an application can be imported from, so that a fresh process finds its handlers by importing it again."""

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import msgspec

from ...errors import BadHandler, WrongProcess
from ...handlers.registry import Handler

_SCRIPT = "__demora_main__"  # what a script is called where it is imported, so that its `if __name__ == "__main__"` holds
_workers_allowed = True


class ImportPath(msgspec.Struct, frozen=True):
    """A module: its name, or the file of a script."""

    module: str
    file: str | None = None


class AppLocation(msgspec.Struct, frozen=True):
    """The module and name that hold an application, and other modules that do and may register handlers."""

    place: ImportPath
    name: str
    others: tuple[ImportPath, ...] = ()


def location_of(app: object, handler: Handler) -> AppLocation:
    """Where the application of a process handler is; `BadHandler` if no import would find it."""
    found = [(place, name) for module, name in _holders(app) if (place := _place(module)) is not None]
    if not found:
        raise BadHandler(
            handler.type,
            "its process imports the application, and no import finds this one; write app = Demora() at the top of a "
            "module or script (what is typed at a prompt, or made in a function, cannot be imported)",
        )
    (place, name), *others = found
    return AppLocation(place, name, tuple(other for other, _ in others))


def import_path_of(handler: Handler) -> ImportPath:
    """Where the function of a handler was defined."""
    name = handler.function.__module__
    return _place(name) or ImportPath(name)


def find(app: Any, home: AppLocation, place: ImportPath, type: str) -> Handler:
    """The handler for a type, once all that may register it is imported."""
    for one in (home.place, place, *home.others):
        load(one)
        if (handler := app.registry.get(type)) is not None:
            assert isinstance(handler, Handler)
            return handler
    raise BadHandler(type, f"importing {place.file or place.module} does not register it; do so at the top of a module")


def load(place: ImportPath) -> ModuleType:
    """Import a module, or a script under another name than `__main__`, once."""
    if place.file is None:
        return importlib.import_module(place.module)
    if _SCRIPT not in sys.modules:
        spec = importlib.util.spec_from_file_location(_SCRIPT, place.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{place.file} cannot be imported", path=place.file)
        sys.modules[_SCRIPT] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[_SCRIPT])
        except BaseException:
            del sys.modules[_SCRIPT]
            raise
    return sys.modules[_SCRIPT]


def keep_workers_out() -> None:
    """From now on this process imports applications only to call their handlers."""
    global _workers_allowed
    _workers_allowed = False


def expect_worker() -> None:
    """Refuse to start a worker in a process that only calls handlers: its script would start workers without end."""
    if not _workers_allowed:
        raise WrongProcess


def _holders(app: object) -> list[tuple[str, str]]:
    """Modules and names that hold the application, in the order in which they were imported here, so that importing them
    again goes the same way; what was run as a script comes last."""
    modules = {module.__name__: module for module in list(sys.modules.values()) if isinstance(module, ModuleType)}
    held = [(name, key) for name, module in modules.items() for key, value in list(vars(module).items()) if value is app]
    return sorted(held, key=lambda one: one[0] == "__main__")


def _place(module: str) -> ImportPath | None:
    """How another process imports a module of this one; None if it cannot."""
    if module != "__main__":
        return ImportPath(module)
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return ImportPath(spec.name)
    file = getattr(main, "__file__", None)
    return ImportPath("__main__", file) if file is not None and os.path.isfile(file) else None
