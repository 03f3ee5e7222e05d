"""Which addresses demora may call on other people's wish: our own table, for what Python calls global is no filter."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from ..errors import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Network and what it is for, as people read it. The most particular stand first.
_FORBIDDEN: tuple[tuple[str, str], ...] = (
    ("169.254.169.254/32", "the metadata of a cloud machine"),
    ("168.63.129.16/32", "the metadata of a cloud machine"),
    ("100.100.100.200/32", "the metadata of a cloud machine"),
    ("192.0.0.192/32", "the metadata of a cloud machine"),
    ("fd00:ec2::254/128", "the metadata of a cloud machine"),
    ("0.0.0.0/8", "this machine"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a provider's customers"),
    ("127.0.0.0/8", "this machine"),
    ("169.254.0.0/16", "this link only"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documentation"),
    ("192.31.196.0/24", "reserved"),
    ("192.52.193.0/24", "reserved"),
    ("192.88.99.0/24", "a relay to IPv6"),
    ("192.168.0.0/16", "private"),
    ("192.175.48.0/24", "reserved"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "this machine"),
    ("::1/128", "this machine"),
    ("::ffff:0:0/96", "an IPv4 address in disguise"),
    ("::ffff:0:0:0/96", "an IPv4 address in disguise"),
    ("::/96", "an IPv4 address in disguise"),
    ("64:ff9b::/96", "an IPv4 address behind NAT64"),
    ("64:ff9b:1::/48", "an IPv4 address behind NAT64"),
    ("100::/64", "discarded"),
    ("2001::/32", "an IPv4 address behind Teredo"),
    ("2001:2::/48", "for benchmarks"),
    ("2001:db8::/32", "for documentation"),
    ("2001::/23", "reserved"),
    ("2002::/16", "an IPv4 address behind 6to4"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "this link only"),
    ("fec0::/10", "this site only"),
    ("ff00::/8", "multicast"),
)
_TABLE = tuple((ip_network(network), purpose) for network, purpose in _FORBIDDEN)
_UNICAST = ip_network("2000::/3")  # the only part of IPv6 that is given out to be reached by all


class Policy(msgspec.Struct, frozen=True):
    """What the settings open: networks that the table forbids, and plain http to everywhere."""

    allowed: tuple[Network, ...] = ()
    plain_http: bool = False

    def opens(self, address: Address) -> bool:
        """Whether a setting names a network with this address; plain http may go there too."""
        return any(address in network for network in self.allowed if network.version == address.version)

    def objection(self, address: Address) -> str | None:
        """Why this address must not be called, None if it may."""
        return None if self.opens(address) else forbidden(address)


def forbidden(address: Address) -> str | None:
    """What a forbidden address is, None for one that everybody may call."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "this link only"
    for network, purpose in _TABLE:
        if address.version == network.version and address in network:
            return purpose
    if address.version == 6 and address not in _UNICAST:
        return "reserved"
    return None


def read_networks(texts: Iterable[str], field: str) -> tuple[Network, ...]:
    """The networks that a setting names, such as `10.1.0.0/16` or `::1`."""
    return tuple(_network(text.strip(), field) for text in texts if text.strip())


def read_address(text: str) -> Address | None:
    """The address that a text spells as addresses are written today, None for anything else."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _network(text: str, field: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as problem:
        raise Invalid(field, f"{text!r} is no network; write for instance 10.1.0.0/16 ({problem})") from None
