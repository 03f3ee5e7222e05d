"""The SQL of this engine, by name."""

from .. import queries

SQL = queries.load(__package__)
