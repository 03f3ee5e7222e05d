"""The heads of the waiting jobs: the first row of each queue, lane and rank. Claims and releases begin at them.

A skip scan of the index finds them, so that rows behind a head cost nothing. But it takes a step for each queue, and an
application may have a queue for each of its customers. If there are very many queues, a claim looks for due jobs by their
types instead.
"""

import json
from collections.abc import Iterable, Iterator, Set

from ....core.job import PARKED, Lane, Priority
from ....core.states import WAITING
from ...sql.constants import MANY_HEADS, MOST_DUE
from ..connection.connections import SQL
from ..connection.transactions import Transaction

_ALL = -1

_PARKED_LANES, _RANKS = json.dumps([PARKED + lane for lane in Lane]), json.dumps(list(Priority))

Head = tuple[str, int, int, int, int]  # queue, lane, rank, due time and row id
ParkedHead = tuple[str, str, int, int, int, int]  # the type, and a `Head`


def of_all(tx: Transaction) -> list[Head]:
    """The heads of all queues."""
    return list(tx.db.execute(SQL["heads"], (_ALL,)))


def of_queues(tx: Transaction, queues: Iterable[str]) -> list[Head]:
    """The heads of these queues."""
    return list(tx.db.execute(SQL["heads_of_queues"], (json.dumps(list(queues)),)))


def for_claim(tx: Transaction, queues: Set[str] | None, types: Set[str] | None) -> list[Head]:
    """The heads that a claim from these queues (None: from all) needs. They include those of all due jobs of its types. They
    also include one that is due no later than the next job of its types, so that the claim knows when to claim next."""
    if queues is not None and len(queues) < MANY_HEADS:
        return of_queues(tx, queues)
    found = list(tx.db.execute(SQL["heads"], (MANY_HEADS,)))
    if len(found) < MANY_HEADS:
        return found
    by_type = None if types is None else _of_types(tx, types)
    return of_all(tx) if by_type is None else by_type


def of_parked(tx: Transaction, types: Iterable[str]) -> list[ParkedHead]:
    """The first parked row of each of these types, queue, lane and rank."""
    return list(tx.db.execute(SQL["parked_heads"], (json.dumps(sorted(types)), _PARKED_LANES, _RANKS)))


def _of_types(tx: Transaction, types: Iterable[str]) -> list[Head] | None:
    """The heads of all due jobs of these types, and the next job of each type; None if too many jobs are due."""
    due: set[tuple[str, int, int]] = set()
    coming: list[Head] = []
    for type in types:
        for status in WAITING:
            found = list(tx.db.execute(SQL["due_of_type"], (type, status.value, tx.wall, MOST_DUE)))
            if len(found) == MOST_DUE:
                return None
            due.update(found)
            coming += tx.db.execute(SQL["coming_of_type"], (type, status.value, tx.wall))
    return [*_firsts(tx, due), *coming]


def _firsts(tx: Transaction, kinds: Iterable[tuple[str, int, int]]) -> Iterator[Head]:
    for kind in kinds:
        for due_at, number in tx.db.execute(SQL["head"], kind):
            yield (*kind, due_at, number)
