"""Who calls: the peer, or behind a trusted proxy the address that the proxy names."""

import pytest

from demora.core.access import UNKNOWN, caller_of
from demora.core.outbound.targets import read_networks

PROXIES = read_networks(["127.0.0.1", "10.0.0.0/8", "::1"], "trusted_proxies")


def caller(peer: str | None, *x_forwarded_for: str, forwarded: tuple[str, ...] = ()) -> str:
    return caller_of(peer, x_forwarded_for, forwarded, PROXIES)


def test_the_headers_of_a_peer_that_is_no_trusted_proxy_are_ignored() -> None:
    assert caller("192.0.2.7", "198.51.100.1", forwarded=()) == "192.0.2.7"
    assert caller("192.0.2.7", forwarded=("for=198.51.100.1",)) == "192.0.2.7"
    assert caller_of("127.0.0.1", ["198.51.100.1"], [], ()) == "127.0.0.1"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "127.0.0.1"),
        (["198.51.100.1"], "198.51.100.1"),
        (["203.0.113.9, 198.51.100.1"], "198.51.100.1"),  # what stands before was written by the caller
        (["203.0.113.9", "198.51.100.1"], "198.51.100.1"),
        (["198.51.100.1, 10.1.2.3"], "198.51.100.1"),  # two trusted proxies in a row
        (["10.9.9.9, 10.1.2.3"], "10.9.9.9"),  # a caller inside a trusted network
        (["198.51.100.1:4711"], "198.51.100.1"),
        (["[2001:db8:1:2:3:4:5:6]:4711"], "2001:db8:1:2::/64"),
        (["198.51.100.1, nonsense"], "127.0.0.1"),
        (["198.51.100.1, "], "127.0.0.1"),
        (["nonsense, 10.1.2.3"], "10.1.2.3"),
        (["::ffff:198.51.100.1"], "198.51.100.1"),
    ],
)
def test_a_trusted_proxy_says_who_calls(lines: list[str], expected: str) -> None:
    assert caller("127.0.0.1", *lines) == expected


@pytest.mark.parametrize(("proxies", "expected"), [(19, "198.51.100.1"), (20, "10.0.0.0")])
def test_twenty_addresses_are_read_from_the_end(proxies: int, expected: str) -> None:
    hops = ["198.51.100.1", *(f"10.0.0.{n}" for n in range(proxies))]
    assert caller("127.0.0.1", ", ".join(hops)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("for=198.51.100.1", "198.51.100.1"),
        ("For=203.0.113.9, proto=https;for=198.51.100.1;by=10.1.1.1", "198.51.100.1"),
        ('for="[2001:db8:1:2:3:4:5:6]:4711"', "2001:db8:1:2::/64"),
        ('for="198.51.100.1:80"', "198.51.100.1"),
        ("for=unknown", "127.0.0.1"),
        ("for=_hidden", "127.0.0.1"),
        ("proto=https", "127.0.0.1"),
        ("xfor=198.51.100.1", "127.0.0.1"),
    ],
)
def test_the_standard_header_says_it_too(line: str, expected: str) -> None:
    assert caller("127.0.0.1", forwarded=(line,)) == expected


def test_where_both_headers_are_there_neither_counts() -> None:
    """A proxy appends to one of them and passes on the other, which the caller made up."""
    assert caller("127.0.0.1", "198.51.100.1", forwarded=("for=203.0.113.9",)) == "127.0.0.1"


def test_twenty_proxies_in_a_row_are_read_and_no_more() -> None:
    proxies = [f"10.0.0.{n}" for n in range(1, 21)]
    assert caller("127.0.0.1", ", ".join(["198.51.100.1", *proxies[1:]])) == "198.51.100.1"
    assert caller("127.0.0.1", ", ".join(["198.51.100.1", *proxies])) == "10.0.0.1"


def test_an_ipv6_address_is_counted_with_its_network() -> None:
    assert caller("2001:db8:0:1::1") == caller("2001:db8:0:1:ffff::2") == "2001:db8:0:1::/64"
    assert caller("2001:db8:0:2::1") != caller("2001:db8:0:1::1")


def test_an_ipv4_address_is_the_same_however_it_is_written() -> None:
    assert caller("::ffff:192.0.2.7") == caller("192.0.2.7") == "192.0.2.7"


@pytest.mark.parametrize("peer", [None, "", "/run/demora.sock", "é", "999.1.1.1"])
def test_a_peer_without_an_address_is_counted_too(peer: str | None) -> None:
    assert caller(peer, "198.51.100.1") == UNKNOWN


def test_a_long_row_of_proxies_is_looked_at_in_part() -> None:
    assert caller("127.0.0.1", ",".join(["198.51.100.1"] + ["10.0.0.1"] * 10_000)) == "10.0.0.1"
