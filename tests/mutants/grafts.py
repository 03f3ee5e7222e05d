"""Changes the source of a process that has loaded it already: importing demora again costs more than most tests that fail.

Only what a fresh import would also come to is changed in place: the body of a function that did not run during the import, a
named statement, a Lua script. For anything else, such as a constant of a module, the process must import demora again.
"""

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

Key = tuple[str, str, int, bytes]


class Grafts:
    """The loaded modules of a copy of the source."""

    def __init__(self, source: Path, modules: Sequence[str]) -> None:
        """Import the modules from `source`, the folder of `demora`, and note which functions run meanwhile."""
        self._source = source
        self._ran = set[Key]()
        sys.path.insert(0, str(source))
        sys.setprofile(self._note)
        try:
            for module in modules:
                importlib.import_module(module)
        finally:
            sys.setprofile(None)
        self._functions = dict[Key, list[FunctionType]]()
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(source)):
                self._functions.setdefault(_key(one.__code__), []).append(one)

    def apply(self, file: str, old: bytes, new: bytes) -> bool:
        """Change a file from `old` to `new` in this process. False if a new import is needed; nothing is changed then."""
        if file.endswith(".py"):
            return self._python(str(self._source / "demora" / file), old, new)
        return _lua(file, old) if file.endswith(".lua") else _sql(file)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._ran.add(_key(frame.f_code))

    def _python(self, path: str, old: bytes, new: bytes) -> bool:
        before, after = (compile(text, path, "exec", dont_inherit=True) for text in (old, new))
        changed = list(_changed(before, after))
        if not changed or _key(changed[-1][0]) in self._ran or not changed[-1][0].co_flags & CO_OPTIMIZED:
            return False
        bodies = [(self._functions.get(_key(was), []), now) for was, now in changed]
        if not any(functions for functions, _ in bodies):
            return False
        for functions, now in bodies:
            for function in functions:
                function.__code__ = now
        return True


def forget() -> None:
    """Have the next import of demora load it again."""
    for name in [name for name in sys.modules if name == "demora" or name.startswith("demora.")]:
        del sys.modules[name]


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno, code.co_code


def _changed(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code that differs in itself, with the change, and what it stands in, from the module inwards."""
    if before == after and before.co_consts == after.co_consts:
        return
    yield before, after
    one, two = _inner(before), _inner(after)
    if _own(before) == _own(after) and len(one) == len(two):
        yield from next((found for pair in zip(one, two, strict=True) if (found := list(_changed(*pair)))), ())


def _inner(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> tuple[Any, ...]:
    """What a code does by itself, without the functions in it."""
    constants = tuple(None if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts)
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def _sql(file: str) -> bool:
    """Read the named statements again. Those of which another is made on import need a new import."""
    if not file.endswith("/queries.sql"):
        return False
    package = ".".join(["demora", *Path(file).parent.parts])
    connections = importlib.import_module(f"{package}.connection.connections")
    loaded = connections.SQL if "sqlite" in file else connections._BLOCKS
    fresh = importlib.import_module("demora.engines.sql.queries").load(package)
    if any(loaded[name] != fresh[name] and f"{name}_new" in getattr(connections, "_NEW", ()) for name in fresh):
        return False
    loaded.update(fresh)
    return True


def _lua(file: str, old: bytes) -> bool:
    """Read a script again, in each object that has its text."""
    script = importlib.import_module("demora.line.redis.connections").Script
    found = [one for one in _everything() if isinstance(one, script) and one.text == old.decode()]
    for one in found:
        one.__init__(Path(file).stem)
    return bool(found)


def _everything() -> list[Any]:
    gc.unfreeze()  # frozen objects are left out
    return gc.get_objects()
