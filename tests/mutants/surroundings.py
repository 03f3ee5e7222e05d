"""What surrounds a change: a function or a class of Python, a statement of SQL, or the file."""

import ast
import functools
import re
from pathlib import Path

_BLOCK = re.compile(r"^-- name: (\w+)", re.M)


def around(file: str, source: str, line: int) -> tuple[str, str]:
    """The name and the text of what surrounds a line."""
    if file.endswith(".py"):
        return _definition(source, line)
    if file.endswith(".sql"):
        return _block(source, line)
    return Path(file).stem, source


def _definition(source: str, line: int) -> tuple[str, str]:
    names, inner = list[str](), _parsed(source)
    while True:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [one for one in ast.iter_child_nodes(inner) if isinstance(one, ast.stmt) and _spans(one, line)]
        if not found:
            break
        inner = found[0]
        if isinstance(inner, kinds):
            names.append(inner.name)
            last = inner
    return (".".join(names), "\n".join(source.split("\n")[last.lineno - 1 : last.end_lineno])) if names else ("", source)


@functools.lru_cache(maxsize=4)
def _parsed(source: str) -> ast.AST:
    return ast.parse(source)


def _spans(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _block(source: str, line: int) -> tuple[str, str]:
    starts = list(_BLOCK.finditer(source))
    offset = sum(len(one) + 1 for one in source.split("\n")[: line - 1])
    before = [found for found in starts if found.start() <= offset]
    if not before:
        return "", source
    end = next((found.start() for found in starts if found.start() > offset), len(source))
    return before[-1][1], source[before[-1].start() : end]
