"""Targets of calls to other servers: which addresses and URLs demora may call, and with which headers."""

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from ...errors import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Addresses

# Networks that no caller can make demora call, and what each is for. The narrowest stand first. `is_global` of Python's
# `ipaddress` is not used: it differs between versions, and allows addresses that lead to others.
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
_UNICAST = ip_network("2000::/3")  # the only part of IPv6 that is assigned for public use


class Policy(msgspec.Struct, frozen=True):
    """What the settings allow in addition: networks that the table forbids, and plain http to all addresses."""

    allowed: tuple[Network, ...] = ()
    plain_http: bool = False

    def opens(self, address: Address) -> bool:
        """Whether a setting allows the network of this address, also with plain http."""
        return any(address in network for network in self.allowed if network.version == address.version)

    def objection(self, address: Address) -> str | None:
        """Return why demora must not call this address; None if it may."""
        return None if self.opens(address) else forbidden(address)


def forbidden(address: Address) -> str | None:
    """Return what a forbidden address is for; None if the address is public."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "this link only"
    for network, purpose in _TABLE:
        if address.version == network.version and address in network:
            return purpose
    if address.version == 6 and address not in _UNICAST:
        return "reserved"
    return None


def read_networks(texts: Iterable[str], field: str) -> tuple[Network, ...]:
    """Return the networks that a setting names, such as `10.1.0.0/16` or `::1`."""
    return tuple(_network(text.strip(), field) for text in texts if text.strip())


def address_in(text: str) -> Address | None:
    """Return the address in a text in its usual notation; None for anything else."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _network(text: str, field: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as problem:
        raise Invalid(field, f"{text!r} is not a network; write for instance 10.1.0.0/16 ({problem})") from None


# URLs

MOST_URL = 2048

# The characters that RFC 3986 allows, except those that some parsers read in another way.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@%/?\[\]-]*)?)"
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}


class Target(msgspec.Struct, frozen=True):
    """A URL in its parts. `host` has one spelling: a name in lower case, or an address in its short form without brackets.
    `rest` is the path and the query."""

    scheme: str
    host: str
    port: int
    rest: str
    address: Address | None

    @property
    def plain(self) -> bool:
        """Whether the request is sent without TLS."""
        return self.scheme == "http"

    @property
    def origin(self) -> str:
        """The URL without path and query, which may hold secrets."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    def __str__(self) -> str:
        return self.origin + (self.rest if self.rest.startswith("/") else f"/{self.rest}")


def read_url(url: str, field: str = "url") -> Target:
    """Return the parts of a URL. There is one strict reading, so that no other part can read another host into the URL.
    Refuses user names, characters beyond ASCII, unusual notations of addresses, and fragments."""
    if not isinstance(url, str) or not 1 <= len(url) <= MOST_URL:
        raise Invalid(field, f"must be an http or https URL of at most {MOST_URL} characters")
    form = _URL.fullmatch(url)
    if form is None:
        raise Invalid(field, _why_not(url))
    host, port = form["host"].lower(), int(form["port"] or _PORTS[form["scheme"]])
    if not 1 <= port <= 65535:
        raise Invalid(field, "its port must be from 1 to 65535")
    address = _address(host, field)
    return Target(form["scheme"], host if address is None else str(address), port, form["rest"], address)


def check_target(target: Target, policy: Policy, field: str = "url") -> None:
    """Refuse a target that can be judged before its name is resolved: plain http, and addresses that are forbidden."""
    if target.address is not None:
        problem = objection(target, target.address, policy)
    else:
        problem = None if not target.plain or policy.plain_http or policy.allowed else _plain(target)
    if problem is not None:
        raise Invalid(field, problem)


def objection(target: Target, address: Address, policy: Policy) -> str | None:
    """Return why demora must not dial this address for this target; None if it may."""
    purpose = policy.objection(address)
    if purpose is not None:
        # The error does not show the address: callers must not learn how a name resolves inside the network.
        where = target.host if target.address is not None else f"{target.host} leads to an address that"
        return f"{where} is {purpose} and must not be called; DEMORA_OUTBOUND_ALLOW opens networks"
    if target.plain and not policy.plain_http and not policy.opens(address):
        return _plain(target)
    return None


def _plain(target: Target) -> str:
    return f"{target.origin} is plain http; use https, or allow it with DEMORA_OUTBOUND_HTTP=true"


def _address(host: str, field: str) -> Address | None:
    """Return the address if the host is one, None for a name. Refuses hosts that some parsers take for an address and
    others for a name."""
    if host.startswith("["):
        address = address_in(host[1:-1])
        if not isinstance(address, IPv6Address):
            raise Invalid(field, "has no IPv6 address between its brackets")
        return address
    labels = host.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise Invalid(field, "its host must be a name such as example.com, without a dot at its end, or an IP address")
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    address = address_in(host)
    if address is None:
        raise Invalid(field, "has an IP address in an unusual notation; write it as 192.0.2.1")
    return address


def _why_not(url: str) -> str:
    """Return what is wrong with a URL that does not match the pattern. Repeats no part of the URL."""
    if not url.isascii():
        return "must be in ASCII: write an international name as xn--…, and other letters of the path as %…"
    if not url.startswith(("http://", "https://")):
        return "must be an http or https URL with a host"
    authority = re.split(r"[/?#]", url.partition("://")[2])[0]
    if "@" in authority:
        return "must not hold a user name or password"
    if "#" in url:
        return "must not have a fragment (#…): it is never sent"
    return "must be an http or https URL with a host, and letters that a URL may not have written as %…"


# Headers

MOST_HEADERS, MOST_BYTES = 50, 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_FRAMING = frozenset({"content-length", "transfer-encoding", "te", "trailer", "expect", "accept-encoding"})
_CONNECTION = frozenset({"host", "connection", "keep-alive", "upgrade", "http2-settings"})
_SET_BY_DEMORA = _FRAMING | _CONNECTION
_SET_BY_DEMORA_BEGIN = ("proxy-", "webhook-", ":")


def check_headers(headers: Mapping[str, str], field: str = "headers") -> dict[str, str]:
    """Return the headers if demora may send all of them. Refuses headers that say where a message ends, where it goes or how
    it is forwarded. `Invalid` names the header and repeats no value."""
    if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers.items()) > MOST_BYTES:
        raise Invalid(field, f"at most {MOST_HEADERS} headers of {MOST_BYTES:,} bytes together are allowed")
    seen = set[str]()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise Invalid(field, "a name is made of letters, digits and dashes")
        if not _VALUE.fullmatch(value):
            raise Invalid(f"{field}.{name}", "a value is one line of ASCII text, without control characters")
        if name.lower() in _SET_BY_DEMORA or name.lower().startswith(_SET_BY_DEMORA_BEGIN):
            raise Invalid(f"{field}.{name}", "is set by demora itself and cannot be given")
        if name.lower() in seen:
            raise Invalid(f"{field}.{name}", "is given twice")
        seen.add(name.lower())
    return dict(headers)
