"""Which addresses demora may call on other people's request: our own table, for what Python calls global is no filter."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from ..errors import Invalid
from .spans import ZERO
from .verdict import backoff

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


# Headers that a caller may ask for: none that says where a message ends, where it goes or who carries it on.


MOST_HEADERS, MOST_BYTES = 50, 16 * 1024

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"}
) | {
    "expect",
    "accept-encoding",
    "http2-settings",
}
_OURS_BEGIN = ("proxy-", "webhook-", ":")


def check_headers(headers: Mapping[str, str], field: str = "headers") -> dict[str, str]:
    """The headers, checked; `Invalid` names the one that must not be sent, and repeats no value."""
    if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers.items()) > MOST_BYTES:
        raise Invalid(field, f"at most {MOST_HEADERS} headers of {MOST_BYTES:,} bytes together are allowed")
    seen = set[str]()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise Invalid(field, "a name is made of letters, digits and dashes")
        if not _VALUE.fullmatch(value):
            raise Invalid(f"{field}.{name}", "a value is one line of ASCII text, without control characters")
        if name.lower() in _OURS or name.lower().startswith(_OURS_BEGIN):
            raise Invalid(f"{field}.{name}", "is set by demora itself and cannot be asked for")
        if name.lower() in seen:
            raise Invalid(f"{field}.{name}", "is there twice")
        seen.add(name.lower())
    return dict(headers)


# URLs that demora is asked to call. One strict reading, so that nobody down the line can read another host into them.


MOST_URL = 2048

# Letters, digits and signs that a URL may have by its standard, but for the backslash and what only some take.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@%/?\[\]-]*)?)"
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}


class Target(msgspec.Struct, frozen=True):
    """Where a URL leads. `host` has one spelling for all that mean the same: a name in small letters, an address as it is
    written for short, without brackets. `rest` is path and query."""

    scheme: str
    host: str
    port: int
    rest: str
    address: Address | None

    @property
    def plain(self) -> bool:
        """Whether everybody on the way can read what is sent."""
        return self.scheme == "http"

    @property
    def origin(self) -> str:
        """The URL without path and query, which may hold what is nobody's business."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    def __str__(self) -> str:
        return self.origin + (self.rest if self.rest.startswith("/") else f"/{self.rest}")


def read_url(url: str, field: str = "url") -> Target:
    """What a URL means, or `Invalid`: user names, other letters than ASCII, addresses in odd spellings and fragments have no
    place in it."""
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
    """Refuse what can be refused before a name is resolved: plain http, and addresses that must not be called."""
    if target.address is not None:
        problem = objection(target, target.address, policy)
    else:
        problem = None if not target.plain or policy.plain_http or policy.allowed else _plain(target)
    if problem is not None:
        raise Invalid(field, problem)


def objection(target: Target, address: Address, policy: Policy) -> str | None:
    """Why this address must not be dialled for the sake of this target, None if it may."""
    purpose = policy.objection(address)
    if purpose is not None:
        # Which address a name has inside is nobody's business who may only name it.
        where = target.host if target.address is not None else f"{target.host} leads to an address that"
        return f"{where} is {purpose} and must not be called; DEMORA_OUTBOUND_ALLOW opens networks"
    if target.plain and not policy.plain_http and not policy.opens(address):
        return _plain(target)
    return None


def _plain(target: Target) -> str:
    return f"{target.origin} is plain http; use https, or allow it with DEMORA_OUTBOUND_HTTP=true"


def _address(host: str, field: str) -> Address | None:
    """The address that the host is, None for a name; refuses what some take for an address and others for a name."""
    if host.startswith("["):
        address = read_address(host[1:-1])
        if not isinstance(address, IPv6Address):
            raise Invalid(field, "has no IPv6 address between its brackets")
        return address
    labels = host.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise Invalid(field, "its host must be a name such as example.com, without a dot at its end, or an IP address")
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    address = read_address(host)
    if address is None:
        raise Invalid(field, "writes an IP address in an odd way; write it as 192.0.2.1")
    return address


def _why_not(url: str) -> str:
    """What is wrong with a URL that has not the form of one. Repeats nothing of it."""
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


# What the answer of another server means for whoever called it.


LONGEST_RETRY_AFTER = timedelta(hours=12)
JITTER = 0.2  # of a wait, so that those who failed together do not come again together
_PASSING = frozenset({408, 425, 429})
GONE = 410


class Meaning(Enum):
    """What to do after an answer."""

    DONE = "done"
    AGAIN = "again"  # later it may be another one
    USELESS = "useless"  # it will be the same for ever
    GONE = "gone"  # and nobody there wants to hear of us again


def meaning_of_call(status: int, expected: Collection[int] = ()) -> Meaning:
    """For `http.request`: what was expected is a success, what may pass is tried again, everything else never will."""
    if status in expected or (not expected and 200 <= status < 300):
        return Meaning.DONE
    return Meaning.AGAIN if status in _PASSING or status >= 500 else Meaning.USELESS


def meaning_of_delivery(status: int) -> Meaning:
    """For a webhook: whatever is no success is tried again, since the event stays true, unless the receiver is gone."""
    if 200 <= status < 300:
        return Meaning.DONE
    return Meaning.GONE if status == GONE else Meaning.AGAIN


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """The wait that a Retry-After header asks for, capped; None if there is none, or none that can be read."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return LONGEST_RETRY_AFTER if len(text) > 6 else min(timedelta(seconds=int(text)), LONGEST_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(text)
        wait = at - now
    except (TypeError, ValueError, OverflowError):  # a time without a zone is none either
        return None
    return min(max(wait, ZERO), LONGEST_RETRY_AFTER)


def wait_before(asked: timedelta | None, *, base: timedelta, failures: int, cap: timedelta) -> timedelta | None:
    """The wait after the `failures`-th failure that the server asked for, but no less than the usual backoff; None leaves it
    to that."""
    return None if asked is None else max(asked, backoff(base, failures, cap=cap))


# When a job comes back whose host is busy. Times are seconds on one monotonic clock.


SHORTEST = 15.0  # seconds ahead that turns are given at least
LONGEST = 3600.0  # and at most
GROWTH = 3.0  # how far ahead, in times that the host has been busy
GUESS = 0.5  # seconds that a call takes, while none of them has ended
WEIGHT = 0.2  # of one call in the average


class Crowd(msgspec.Struct, frozen=True):
    """The jobs that were sent away from one host: since when, up to when turns are given, and when the last comes back."""

    since: float
    booked_until: float
    last_back: float

    def over(self, now: float) -> bool:
        """Whether all of them should have come back by now."""
        return now > self.last_back + SHORTEST


def come_back(crowd: Crowd | None, *, now: float, gap: float, drawn: float) -> tuple[Crowd, float]:
    """The wait of one more job whose host is busy, and the crowd with it. `gap` is the time between two ends of calls,
    `drawn` a random number from [0, 1)."""
    if crowd is None or crowd.over(now):
        crowd = Crowd(since=now, booked_until=now, last_back=now)
    ahead = min(max(SHORTEST, GROWTH * (now - crowd.since)), LONGEST)
    turn = max(crowd.booked_until, now) + gap
    if turn - now <= ahead:
        wait, booked = min(turn - now + gap * drawn, ahead), turn
    else:
        wait, booked = ahead * (1 - drawn / 2), crowd.booked_until
    return Crowd(crowd.since, booked, max(crowd.last_back, now + wait)), wait


def average(before: float | None, took: float) -> float:
    """The time that a call takes, after one more of them: the last few count most."""
    return took if before is None else before + WEIGHT * (took - before)
