"""Values on the wire, and read back from there."""

from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum

import msgspec
import pytest

from demora.wire.shape import Shape

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


class Rank(IntEnum):
    FIRST = 0


class Kind(Enum):
    PLAIN = "plain"


class Part(msgspec.Struct, frozen=True):
    at: datetime
    token: int = 0


class Whole(msgspec.Struct, frozen=True):
    name: str
    at: datetime | None
    spans: tuple[timedelta, ...]
    rank: Rank
    kind: Kind
    parts: tuple[Part, ...] = ()
    own_key: str | None = None
    secret: str = "kept"


class PartView(msgspec.Struct, frozen=True):
    at: str


class WholeView(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    at: str | None
    spans: list[int]
    rank: str
    kind: str
    key: str | None
    more: bool
    parts: list[PartView] | msgspec.UnsetType = msgspec.UNSET


SHAPE = Shape(Whole, WholeView, key="own_key", parts=Shape(Part, PartView))
VALUE = Whole("a", AT, (timedelta(seconds=1), timedelta(microseconds=1)), Rank.FIRST, Kind.PLAIN, (Part(AT),), "k")
VIEW = WholeView(
    "a", "2026-01-02T03:04:05.678Z", [1000, 1], "FIRST", "plain", "k", True, [PartView("2026-01-02T03:04:05.678Z")]
)


def test_each_field_is_written_as_its_type_says() -> None:
    assert SHAPE.write(VALUE, more=True) == VIEW


def test_a_view_is_read_back() -> None:
    read = SHAPE.read(VIEW)
    assert read == msgspec.structs.replace(VALUE, spans=(timedelta(seconds=1), timedelta(milliseconds=1)))


def test_none_stays_none() -> None:
    none = msgspec.structs.replace(VALUE, at=None, own_key=None)
    written = SHAPE.write(none, more=False)
    assert (written.at, written.key) == (None, None)
    assert (SHAPE.read(written).at, SHAPE.read(written).own_key) == (None, None)


def test_given_fields_are_taken_as_they_are() -> None:
    assert SHAPE.write(VALUE, more=True, name="b").name == "b"
    assert SHAPE.read(VIEW, secret="given", parts=(Part(AT, 7),)).parts == (Part(AT, 7),)


def test_a_field_that_a_view_leaves_out_has_its_default() -> None:
    assert SHAPE.read(msgspec.structs.replace(VIEW, parts=msgspec.UNSET)).parts == ()


def test_a_field_that_only_the_view_has_must_be_given() -> None:
    with pytest.raises(TypeError, match="more"):
        SHAPE.write(VALUE)
