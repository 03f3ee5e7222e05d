"""Headers that a caller may ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.outbound.targets import MOST_BYTES, MOST_HEADERS, check_headers
from demora.errors import Invalid

HOSTILE = (
    *(
        {"A\r\nHost": "x"},
        {"A": "x\r\nHost: y"},
        {"A": "x\ny"},
        {"A": "x\0"},
        {"A": "é"},
        {"": "x"},
        {"A B": "x"},
        {"A:": "x"},
    ),
    *({"Host": "x"}, {"host": "x"}, {"CONTENT-LENGTH": "0"}, {"Transfer-Encoding": "chunked"}, {"Connection": "close"}),
    *({"Keep-Alive": "1"}, {"TE": "trailers"}, {"Trailer": "x"}, {"Upgrade": "h2c"}, {"Proxy-Authorization": "x"}),
    *({"Proxy-Connection": "x"}, {"Expect": "100-continue"}, {"Accept-Encoding": "gzip"}, {"webhook-id": "msg_1"}),
    *({":authority": "x"}, {"X-A": "1", "x-a": "2"}, {f"X-{n}": "" for n in range(MOST_HEADERS + 1)}),
    *({"X-A": "x" * MOST_BYTES}, {"N" * 101: "x"}),
)


@pytest.mark.parametrize("headers", HOSTILE, ids=lambda headers: repr(headers)[:30])
def test_a_hostile_header_is_refused_and_its_value_not_repeated(headers: dict[str, str]) -> None:
    with pytest.raises(Invalid) as refused:
        check_headers(headers)
    assert "\n" not in str(refused.value)


def test_headers_have_16_kib_together() -> None:
    most = {"X-A": "x" * (8 * 1024 - 3), "X-B": "x" * (8 * 1024 - 3)}
    assert check_headers(most) == most
    with pytest.raises(Invalid, match="16,384 bytes"):
        check_headers({**most, "Y": ""})


def test_usual_headers_are_taken_as_they_are() -> None:
    headers = {"Authorization": "Bearer abc", "Content-Type": "text/plain; charset=utf-8", "X-Empty": "", "X-Tab": "a\tb"}
    assert check_headers(headers) == headers


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=5))
def test_what_is_taken_fits_on_one_line_each(headers: dict[str, str]) -> None:
    try:
        taken = check_headers(headers)
    except Invalid:
        return
    assert all(line.isprintable() or "\t" in line for line in (f"{name}: {value}" for name, value in taken.items()))
    assert not any(sign in name + value for name, value in taken.items() for sign in "\r\n\0")
