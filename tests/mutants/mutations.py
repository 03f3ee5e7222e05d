"""Generated bugs: small changes of Python, SQL and Lua, each of which could be a slip of the hand."""

import ast
import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutants.surroundings import around

ROOMS = ("core", "store", "engines", "line", "worker")


class Mutation(NamedTuple):
    """One change: in this file the text `old`, from the byte `start` on, becomes `new`."""

    file: str
    line: int
    kind: str
    old: str
    new: str
    start: int

    def applied(self, source: bytes) -> bytes:
        end = self.start + len(self.old.encode())
        assert source[self.start : end] == self.old.encode()
        return source[: self.start] + self.new.encode() + source[end:]


class Named(NamedTuple):
    """A mutation, and a name that stays the same while lines move in their function and files in their engine."""

    name: str
    mutation: Mutation


@functools.cache
def all_mutations(source: Path) -> list[Named]:
    """Every mutation of the rooms, in the order of files and lines."""
    found = []
    for room in ROOMS:
        for path in sorted((source / room).rglob("*")):
            if path.suffix in _BY_SUFFIX and "schema" not in path.parts:
                found.append((path.relative_to(source).as_posix(), path.read_bytes()))
    return named(found)


def mutations(file: str, source: bytes) -> list[Mutation]:
    """The mutations of one file, sorted by line."""
    made = _BY_SUFFIX[Path(file).suffix](source)
    whole = [Mutation(file, source.count(b"\n", 0, start) + 1, kind, old, new, start) for kind, start, old, new in made]
    return sorted(set(whole), key=lambda mutation: (mutation.start, mutation.kind, mutation.new))


def named(files: Iterable[tuple[str, bytes]]) -> list[Named]:
    """Name mutations by what they change, and by the line, the function or statement, the file without its folders, and the
    engine around it. A number tells those apart that have all of these in common."""
    seen, found = Counter[tuple[str, ...]](), []
    for file, source in files:
        text, folders = source.decode(), Path(file).parts
        lines, engine = text.split("\n"), folders[1] if folders[0] == "engines" else ""
        for one in mutations(file, source):
            function, _ = around(file, text, one.line)
            what = (engine, folders[-1], function, one.kind, lines[one.line - 1].strip(), one.old, one.new)
            seen[what] += 1
            found.append(Named(hashlib.sha256(repr((what, seen[what])).encode()).hexdigest()[:12], one))
    return found


def compiles(mutation: Mutation, source: bytes) -> bool:
    """Whether the change leaves a program at all."""
    if not mutation.file.endswith(".py"):
        return True
    try:
        compile(mutation.applied(source), mutation.file, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


Made = Iterator[tuple[str, int, str, str]]  # kind, start, old, new

# Python

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SWAPPABLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)


class _Python:
    """The mutations of a Python file. Annotations, docstrings and protocols stay as they are."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def made(self) -> Made:
        for node in self._nodes(ast.parse(self.source)):
            yield from self._of(node)
            for body in ("body", "orelse", "finalbody"):
                statements = getattr(node, body, None)
                if isinstance(statements, list) and isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef):
                    yield from self._swaps(statements)

    def _nodes(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that run, without annotations, defaults of types and what only a type checker reads."""
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
            return
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._nodes(child)

    def _of(self, node: ast.AST) -> Made:
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield self._change("negated condition", node.test, f"(not ({self._text(node.test)}))")
        elif isinstance(node, ast.comprehension):
            yield from (self._change("negated condition", one, f"(not ({self._text(one)}))") for one in node.ifs)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            other = ast.Compare(node.left, [_OPPOSITE[type(node.ops[0])]()], node.comparators)
            yield self._change("changed comparison", node, ast.unparse(other))
        elif isinstance(node, ast.BoolOp):
            other_op = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            yield self._change("and for or", node, f"({ast.unparse(other_op)})")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield self._change("off by one", node, str(node.value + 1))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            sign = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield self._change("plus for minus", node, f"({ast.unparse(ast.BinOp(node.left, sign, node.right))})")
        elif isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
            kind = "dropped await" if isinstance(node.value, ast.Await) else "dropped call"
            yield self._change(kind, node, "pass")

    def _swaps(self, statements: list[ast.stmt]) -> Made:
        for one, two in itertools.pairwise(statements):
            plain = all(isinstance(each, _SWAPPABLE) and not _is_text(each) for each in (one, two))
            if (
                plain
                and _order_matters(one, two)
                and one.col_offset == two.col_offset
                and two.lineno > (one.end_lineno or one.lineno)
            ):
                first, between, second = self._text(one), self._between(one, two), self._text(two)
                yield "swapped statements", self._start(one), first + between + second, second + between + first

    def _change(self, kind: str, node: ast.expr | ast.stmt, new: str) -> tuple[str, int, str, str]:
        return kind, self._start(node), self._text(node), new

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self.source[self._start(node) : self._end(node)].decode()

    def _between(self, one: ast.stmt, two: ast.stmt) -> str:
        return self.source[self._end(one) : self._start(two)].decode()

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _order_matters(one: ast.stmt, two: ast.stmt) -> bool:
    """Whether two statements could do something else in the other order. The order of two names does not matter, nor of two
    values that are kept beside each other, nor of a call and a name for a constant."""
    calls = isinstance(one, ast.Expr) or isinstance(two, ast.Expr)
    if all(_is_local(each) for each in (one, two)) and not calls:
        return False
    related = bool(_sets(one) & (_reads(two) | _sets(two)) or _sets(two) & _reads(one))
    names_constant = any(not isinstance(each, ast.Expr) and not _reads(each) and _is_local(each) for each in (one, two))
    return related or (calls and not names_constant)


def _sets(statement: ast.stmt) -> set[str]:
    """The names and attributes that an assignment sets."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    found = [one for target in targets if target for one in ast.walk(target)]
    return {
        ast.unparse(one) for one in found if isinstance(one, (ast.Name, ast.Attribute)) and isinstance(one.ctx, ast.Store)
    }


def _reads(statement: ast.stmt) -> set[str]:
    """The names and attributes that a statement reads now; a lambda reads its own later."""
    value = getattr(statement, "value", None)
    own = _sets(statement) if isinstance(statement, ast.AugAssign) else set()
    later = {one for each in ast.walk(statement) if isinstance(each, ast.Lambda) for one in ast.walk(each)}
    read = [one for one in ast.walk(value or ast.Pass()) if isinstance(one, (ast.Name, ast.Attribute)) and one not in later]
    return own | {ast.unparse(one) for one in read}


def _is_local(statement: ast.stmt) -> bool:
    return all(name.isidentifier() for name in _sets(statement))


# SQL

_LOCK = re.compile(r"\s+for update(?: of \w+)?(?: skip locked)?")
_SKIP = re.compile(r" skip locked")
_PREDICATE = re.compile(r"\b(?:where|and) ")
_PREDICATE_ENDS = re.compile(
    r"\b(and|or|order|limit|for|group|returning|from|union|then|on conflict|left join|window|else|end)\b", re.I
)
_IN_WORD = re.compile(r"\w").match
_COMPARES = re.compile(r"[<>=]|\b(is|in|exists|any|not)\b")
_SET = re.compile(r"\bset\s")
_SET_ENDS = re.compile(r"\b(from|where|returning)\b")


def _sql(source: bytes) -> Made:
    text = source.decode()
    code = re.sub(r"--[^\n]*", lambda comment: "#" * len(comment[0]), text)  # comments are no code
    for found in _LOCK.finditer(code):
        yield "dropped lock", _at(text, found.start()), text[found.start() : found.end()], ""
    for found in _SKIP.finditer(code):
        yield "waits for locks", _at(text, found.start()), found[0], ""
    for found in _PREDICATE.finditer(code):
        end = _until(code, found.end(), _PREDICATE_ENDS)
        old = text[found.end() : end].rstrip()
        if _COMPARES.search(old) and "between" not in old:
            yield "dropped predicate", _at(text, found.end()), old, "true"
    for found in _SET.finditer(code):
        yield from _columns(text, code, found.end())


def _columns(text: str, code: str, start: int) -> Made:
    """Drop each column of an update, if it has more than one."""
    end = _until(code, start, _SET_ENDS)
    parts, begin = [], start
    while begin < end:
        comma = min(_until(code, begin, re.compile(r",")), end)
        parts.append((begin, comma))
        begin = comma + 1
    for number, (begin, comma) in enumerate(parts):
        if len(parts) > 1:
            first, last = (begin, comma + 1) if number == 0 else (begin - 1, len(text[:comma].rstrip()))
            yield "dropped column", _at(text, first), text[first:last], ""


def _until(code: str, start: int, ends: re.Pattern[str]) -> int:
    """Where an expression ends: at one of these words, at a comment or an empty line, or where its bracket is closed."""
    depth, place = 0, start
    while place < len(code):
        one = code[place]
        if one in "([":
            depth += 1
        elif one in ")]":
            depth -= 1
        elif one == "'":
            place = code.index("'", place + 1)
        if depth < 0 or one in "#;" or code.startswith("\n\n", place):
            return place
        if depth == 0 and place > start and ends.match(code, place) and not (one.isalnum() and _IN_WORD(code[place - 1])):
            return place
        place += 1
    return place


def _at(text: str, place: int) -> int:
    return len(text[:place].encode())


# Lua

_LUA_COMPARISON = re.compile(r"(==|~=|<=|>=|(?<![<>=~-])[<>](?!=))")
_LUA_OPPOSITE = {"==": "~=", "~=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_LUA_IF = re.compile(r"\b(?:if|while|elseif) (.+?) (?:then|do)\n")
_LUA_NUMBER = re.compile(r"(?<![\w\[.'])(\d+)(?![\w'.])")
_LUA_CALL = re.compile(r"^ *(redis\.call\([^\n]*\))$", re.M)
_LUA_SIGN = re.compile(r" ([+-]) (?=\w)")


def _lua(source: bytes) -> Made:
    text = source.decode()
    code = re.sub(r"--[^\n]*", lambda comment: "#" * len(comment[0]), text)
    code = re.sub(r"'[^'\n]*'", lambda word: "'" + "#" * (len(word[0]) - 2) + "'", code)
    for found in _LUA_COMPARISON.finditer(code):
        yield "changed comparison", _at(text, found.start()), found[0], _LUA_OPPOSITE[found[0]]
    for found in _LUA_IF.finditer(code):
        old = text[found.start(1) : found.end(1)]
        yield "negated condition", _at(text, found.start(1)), old, f"not ({old})"
    for found in _LUA_NUMBER.finditer(code):
        yield "off by one", _at(text, found.start()), found[0], str(int(found[0]) + 1)
    for found in _LUA_CALL.finditer(code):
        yield "dropped call", _at(text, found.start(1)), text[found.start(1) : found.end(1)], ""
    for found in _LUA_SIGN.finditer(code):
        yield "plus for minus", _at(text, found.start(1)), found[1], "-" if found[1] == "+" else "+"


_BY_SUFFIX = {".py": lambda source: _Python(source).made(), ".sql": _sql, ".lua": _lua}
