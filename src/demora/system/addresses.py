"""The address that the service listens on: how it is read, shown in a URL, and blamed in an error."""

import errno
from ipaddress import IPv4Address, IPv6Address, ip_address

from ..core.outbound.targets import Address
from ..errors import BadSetting, CannotListen


def read_address(host: str, setting: str = "host") -> Address:
    """Return the address that a host setting means. Refuses all names but localhost."""
    try:
        return ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise BadSetting(
            setting, f"{host!r} is not an IP address; write 127.0.0.1, ::1, localhost, or 0.0.0.0 for every address"
        ) from None


def in_url(address: Address) -> str:
    """Return the address as written in a URL. For the address that means all, returns the loopback address."""
    if address.is_unspecified:
        address = IPv4Address("127.0.0.1") if address.version == 4 else IPv6Address("::1")
    return str(address) if address.version == 4 else f"[{address}]"


def cannot_listen(problem: OSError, host: str, port: int, choice: str) -> CannotListen:
    """Return the error that names the setting to change; `choice` names the option or setting for another port."""
    another = f"choose another with {choice}"
    if problem.errno == errno.EADDRINUSE:
        return CannotListen("port", f"{port} on {host} is taken by another program; {another}, 0 for a free one")
    if problem.errno == errno.EADDRNOTAVAIL:
        return CannotListen("host", f"{host} is not an address of this machine; 0.0.0.0 means all of its addresses")
    return CannotListen("port", f"cannot listen on {host} port {port}: {problem.strerror or problem}; {another}")
