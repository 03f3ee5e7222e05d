"""The SQL of this engine, by name: for one schema, with parameters by name."""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from .. import queries

_BLOCKS = queries.load(__package__)
# As the statement of that name, but it fails where an id is there already: to ask first takes a fifth of its time.
_NEW = {f"{name}_new": _BLOCKS[name].replace("on conflict do nothing", "", 1) for name in ("add", "add_one")}
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_SCHEMA = re.compile(r"\bdemora\.(?=[a-z])")


class Statement(NamedTuple):
    """SQL with numbered parameters, and their names in order."""

    sql: str
    parameters: tuple[str, ...]


@cache
def statements(schema: str) -> dict[str, Statement]:
    """Every statement, on the tables of a schema. Names are qualified, so that no session need be set up."""
    return {name: _numbered(in_schema(sql, schema)) for name, sql in (_BLOCKS | _NEW).items()}


@cache
def narrowed_find(schema: str, narrow: str) -> Statement:
    """`find`, kept to what a partial index knows."""
    sql = _BLOCKS["find"].replace("/* narrowed to */ where true", _BLOCKS[narrow])
    return _numbered(in_schema(sql, schema))


def script(name: str, schema: str) -> str:
    """A file of this package with several statements and no parameters."""
    return in_schema((files(__package__) / name).read_text(), schema)


def in_schema(sql: str, schema: str) -> str:
    return _SCHEMA.sub(f'"{schema}".', sql)


def _numbered(sql: str) -> Statement:
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    return Statement(_PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql), tuple(names))
