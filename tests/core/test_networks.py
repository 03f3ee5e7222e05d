"""Which addresses may be called."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.outbound.targets import Policy, forbidden, read_networks
from demora.errors import Invalid

FORBIDDEN = (
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254"),
    *("172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1"),
    *("198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("168.63.129.16", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8", "::8.8.8.8"),
    *("64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1", "2001:2::1", "2001:db8::1", "2001:10::1", "2001:20::1"),
    *("2002:7f00:1::", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0"),
    *("fec0::1", "ff02::1", "4000::1", "1::1", "e000::1"),
)
OPEN = ("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "192.167.1.1")
OPEN_6 = ("2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2003::1", "3ffe::1")
v4 = st.integers(0, 2**32 - 1).map(IPv4Address)
v6 = st.integers(0, 2**128 - 1).map(IPv6Address)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_for_everybody_is_forbidden(address: str) -> None:
    assert forbidden(ip_address(address)) is not None


@pytest.mark.parametrize("address", OPEN + OPEN_6)
def test_an_address_that_is_for_everybody_is_not_forbidden(address: str) -> None:
    assert forbidden(ip_address(address)) is None


@given(v4)
def test_whatever_python_calls_private_or_special_is_forbidden(address: IPv4Address) -> None:
    special = address.is_private or address.is_multicast or address.is_reserved or address.is_loopback
    known = {ip_network("192.31.196.0/24"), ip_network("192.52.193.0/24"), ip_network("192.175.48.0/24")}
    if special or address.is_link_local or address.is_unspecified or not address.is_global:
        assert forbidden(address) is not None or any(address in network for network in known)


@given(v6)
def test_nothing_outside_of_global_unicast_may_be_called(address: IPv6Address) -> None:
    if address not in ip_network("2000::/3") or not address.is_global:
        assert forbidden(address) is not None


@given(v4)
def test_an_ipv4_address_in_any_disguise_is_forbidden(address: IPv4Address) -> None:
    number = int(address)
    disguises = (0xFFFF << 32, 0, 0xFFFF << 48, 0x64FF9B << 96, 0x64FF9B0001 << 80)
    assert all(forbidden(IPv6Address(disguise | number)) for disguise in disguises)
    assert forbidden(IPv6Address(0x2002 << 112 | number << 80))
    assert forbidden(IPv6Address(0x20010000 << 96 | number ^ 0xFFFFFFFF))


@given(st.one_of(v4, v6))
def test_a_setting_opens_its_network_and_no_other(address: IPv4Address | IPv6Address) -> None:
    policy = Policy(read_networks(["127.0.0.0/8", " 10.1.0.0/16", "::1"], "allow"))
    opened = any(address in network for network in policy.allowed if network.version == address.version)
    assert policy.opens(address) == opened
    assert policy.objection(address) == (None if opened else forbidden(address))


def test_an_opened_ipv4_network_does_not_open_its_disguises() -> None:
    policy = Policy(read_networks(["127.0.0.0/8"], "allow"))
    assert policy.objection(ip_address("127.0.0.1")) is None
    assert policy.objection(ip_address("::ffff:127.0.0.1")) is not None


@pytest.mark.parametrize("text", ["localhost", "10.1.0.1/16", "10.0.0.0/33", "*"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not a network"):
        read_networks([text], "outbound_allow")
