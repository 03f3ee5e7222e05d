"""Which words of a client commit something."""

import struct

import pytest

from tests.servers.wire import Wire


def word(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def prepare(sql: bytes) -> bytes:
    return word(b"P", b"one\0" + sql + b"\0\0\0")


START = word(b"", struct.pack("!I", 80877103)) + word(b"", struct.pack("!I", 196608) + b"user\0demora\0\0")
RUN = word(b"B", b"\0one\0\0\0\0\0\0\0") + word(b"E", b"\0\0\0\0\0") + word(b"S", b"")


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    assert not wire.commits(START)
    return wire


def test_a_write_outside_of_a_transaction_commits_itself(wire: Wire) -> None:
    assert not wire.commits(prepare(b"with a as (update jobs set x = 1) select 1"))
    assert wire.commits(RUN)


def test_a_read_commits_nothing(wire: Wire) -> None:
    assert not wire.commits(prepare(b"select 1") + RUN)


def test_in_a_transaction_the_commit_does(wire: Wire) -> None:
    assert not wire.commits(prepare(b"insert into jobs values (1)") + word(b"Q", b"BEGIN;\0") + RUN)
    assert wire.commits(word(b"Q", b"COMMIT;\0"))
    assert wire.commits(RUN)


def test_words_may_come_in_pieces(wire: Wire) -> None:
    said = prepare(b"delete from jobs") + RUN
    assert [wire.commits(said[n : n + 1]) for n in range(len(said))].count(True) == 1
