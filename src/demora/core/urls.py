"""URLs that demora is asked to call. One strict reading, so that nobody down the line can read another host into them."""

import re
from ipaddress import IPv6Address

import msgspec

from ..errors import Invalid
from .networks import Address, Policy, read_address

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
