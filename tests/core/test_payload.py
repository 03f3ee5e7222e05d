"""The JSON border."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.payload import MOST_BYTES, MOST_DEPTH, check_text, misfit, pack, pack_object, unpack
from demora.errors import Invalid, TooLarge

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | text
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=10
)


class Colour(Enum):
    RED = "red"


class Size(Enum):
    ENDLESS = float("inf")


class Tagged(msgspec.Struct, tag="\ud800"):
    pass


class Point(msgspec.Struct):
    x: int
    y: Any = None


@dataclass
class Mail:
    to: str
    parts: list[Any] = field(default_factory=list)


def nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


@given(values)
def test_what_is_packed_comes_back_as_it_was(value: Any) -> None:
    packed = pack(value, "payload")
    assert unpack(packed) == json.loads(packed) == value


@given(st.dictionaries(text, values, max_size=3))
def test_a_payload_comes_back_as_it_was(value: dict[str, Any]) -> None:
    assert unpack(pack_object(value, "payload")) == value


REFUSED = {
    "NaN": (float("nan"), "finite"),
    "infinity": (float("inf"), "finite"),
    "minus infinity": (float("-inf"), "finite"),
    "an integer of 2**63": (2**63, "64 bits"),
    "an integer below -2**63": (-(2**63) - 1, "64 bits"),
    "NUL": ("a\0b", "NUL"),
    "a lone surrogate": ("\ud800", "surrogate"),
    "a key that is no text": ({1: 2}, "keys must be text"),
    "NUL in a key": ({"a\0": 1}, "NUL"),
    "a lone surrogate in a key": ({"\udfff": 1}, "surrogate"),
    "33 levels": (nested(33), "deeper than 32"),
    "an object": (object(), "JSON"),
    "a complex number": (1j, "JSON"),
    "JSON that nobody has read": (msgspec.Raw(b"nonsense"), "JSON"),
    "text of a kind of its own": (type("Sly", (str,), {})("\ud800"), "JSON"),
    "an infinity in an enumeration": (Size.ENDLESS, "finite"),
    "a lone surrogate as the tag of a struct": (Tagged(), "surrogate"),
    "NaN in a struct": (Point(1, float("nan")), "finite"),
    "NUL in a dataclass": (Mail("\0"), "NUL"),
    "an integer key in a dataclass": (Mail("a", [{1: 2}]), "keys must be text"),
    "33 levels with a dataclass among them": (nested(31, Mail("a")), "deeper than 32"),
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: Point(1, v)], ids=["bare", "in a struct"])
def test_what_some_engine_could_not_give_back_is_refused(wrap, value: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=f"^payload: .*{reason}"):
        pack(wrap(value), "payload")


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 1.5e308, "\u0001", "😀", "", nested(MOST_DEPTH), [[]] * 1000])
def test_the_last_value_before_each_limit_is_accepted(value: Any) -> None:
    assert unpack(pack(value, "payload")) == value


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Invalid):
        pack(loop, "payload")
    mail = Mail("a")
    mail.parts.append(mail)
    with pytest.raises(Invalid):
        pack(mail, "payload")


def test_a_mebibyte_is_accepted_and_a_byte_more_is_not() -> None:
    exact = "x" * (MOST_BYTES - 2)
    assert len(pack(exact, "payload")) == MOST_BYTES
    with pytest.raises(TooLarge, match="1,048,577 bytes"):
        pack(exact + "x", "payload")


def test_size_is_counted_in_bytes() -> None:
    with pytest.raises(TooLarge):
        pack("é" * (MOST_BYTES // 2), "payload")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Mail("a@b.c", [1]), {"to": "a@b.c", "parts": [1]}),
        (Point(1, Mail("a")), {"x": 1, "y": {"to": "a", "parts": []}}),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC)}, {"at": "2030-01-01T00:00:00Z"}),
        ({"colour": Colour.RED, "id": UUID(int=1)}, {"colour": "red", "id": "00000000-0000-0000-0000-000000000001"}),
        ({"pair": (1, 2)}, {"pair": [1, 2]}),
    ],
)
def test_typed_values_are_accepted_as_what_they_are_in_json(value: Any, plain: Any) -> None:
    assert unpack(pack_object(value, "payload")) == plain


@pytest.mark.parametrize("value", [None, 1, "a", [], [{}], datetime(2030, 1, 1, tzinfo=UTC), Colour.RED])
def test_a_payload_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(Invalid, match=r"^payload: must be a JSON object"):
        pack_object(value, "payload")


def test_text_is_checked_alike_outside_of_json() -> None:
    check_text("Zoë 😀", "name")
    for bad in ("\0", "é\0", "\ud800"):
        with pytest.raises(Invalid, match=r"^name: "):
            check_text(bad, "name")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"x":"secret"}', "payload.x: Expected `int`, got `str`"),
        (b"{}", "payload.x: is required"),
        (b'{"x":1,"z":1}', "payload.z: is not a known field"),
        (b'{"x":1,"size":"secret"}', "payload.size: Invalid enum value"),
        (b'{"x":1,"more":[1,"secret"]}', "payload.more[1]: Expected `int`, got `str`"),
        (b'{"x":1,"sizes":{"secret":"x"}}', "payload.sizes: Expected `int`, got `str`"),
        (b"[]", "payload: Expected `object`, got `array`"),
    ],
)
def test_what_does_not_fit_is_named_by_its_field_and_not_repeated(body: bytes, words: str) -> None:
    class Payload(msgspec.Struct, forbid_unknown_fields=True):
        x: int
        size: Colour = Colour.RED
        more: list[int] = []
        sizes: dict[str, int] = {}

    with pytest.raises(msgspec.ValidationError) as problem:
        msgspec.json.decode(body, type=Payload)
    assert str(misfit(problem.value, "payload")) == words
    assert misfit(problem.value).field == (words.partition(": ")[0].removeprefix("payload").removeprefix(".") or "body")
