"""Which address a request comes from: that of the connection, or behind a trusted proxy the one that the proxy names.

A caller can write anything into `X-Forwarded-For` and `Forwarded`. Only what a trusted proxy appended counts, so both are
read from their end, for as long as each address is that of a trusted proxy.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network

from .networks import Address, Network

UNKNOWN = "unknown"  # where there is no address, as on a Unix socket
MOST_HOPS = 20  # proxies in a row that are looked at

_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*(?:"([^"]*)"|([^;\s]*))', re.IGNORECASE)
_WITH_PORT = re.compile(r"\[([^\]]*)\](?::\d{1,5})?|(\d{1,3}(?:\.\d{1,3}){3}):\d{1,5}")


def caller_of(peer: str | None, x_forwarded_for: Sequence[str], forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The caller as it is counted: an IPv4 address, the /64 of an IPv6 address, or `UNKNOWN`.

    The headers count only if the peer is a trusted proxy. A proxy appends to one of them and passes the other on as the
    caller wrote it, so where both are there, neither counts.
    """
    address = _read(peer or "")
    if address is None:
        return UNKNOWN
    if _is_trusted(address, trusted) and not (x_forwarded_for and forwarded):
        address = _behind(address, _hops(x_forwarded_for, forwarded), trusted)
    return _counted(address)


def _behind(proxy: Address, hops: Sequence[str], trusted: Sequence[Network]) -> Address:
    """The last address that is no trusted proxy; if one cannot be read, the proxy that appended it."""
    for hop in hops[: -MOST_HOPS - 1 : -1]:
        named = _read(hop)
        if named is None:
            return proxy
        proxy = named
        if not _is_trusted(named, trusted):
            return named
    return proxy


def _hops(x_forwarded_for: Sequence[str], forwarded: Sequence[str]) -> list[str]:
    if not forwarded:
        return [hop for line in x_forwarded_for for hop in line.split(",")]
    found = [_FOR.search(hop) for line in forwarded for hop in line.split(",")]
    return ["" if one is None else one[1] or one[2] or "" for one in found]


def _read(text: str) -> Address | None:
    """The address that a text spells, with or without a port; one that stands for an IPv4 address is that."""
    text = text.strip()
    with_port = _WITH_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port[1] or with_port[2] or ""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted if network.version == address.version)


def _counted(address: Address) -> str:
    """A household or a server has a /64 of IPv6 to itself: to count each address apart would be no limit."""
    if address.version == 4:
        return str(address)
    return str(ip_network((int(address) >> 64 << 64, 64)))
