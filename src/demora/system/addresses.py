"""The address that the service listens on: what may stand there, and who can reach it."""

import errno
from ipaddress import IPv4Address, IPv6Address, ip_address

from ..errors import BadSetting, CannotListen

Address = IPv4Address | IPv6Address


def read_address(host: str) -> Address:
    """The address that a host setting means. Names are refused: what they mean is not for us to decide."""
    try:
        return ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise BadSetting(
            "host", f"{host!r} is not an IP address; write 127.0.0.1, ::1, localhost, or 0.0.0.0 for every address"
        ) from None


def in_url(address: Address) -> str:
    """The address as a URL names it; where it stands for every address, the one that reaches it from this machine."""
    if address.is_unspecified:
        address = IPv4Address("127.0.0.1") if address.version == 4 else IPv6Address("::1")
    return str(address) if address.version == 4 else f"[{address}]"


def cannot_listen(problem: OSError, host: str, port: int, choice: str) -> CannotListen:
    """The error that says which setting is to blame, and what to do; `choice` is what chooses another port."""
    another = f"choose another with {choice}"
    if problem.errno == errno.EADDRINUSE:
        return CannotListen("port", f"{port} on {host} is taken by another program; {another}, 0 for a free one")
    if problem.errno == errno.EADDRNOTAVAIL:
        return CannotListen("host", f"{host} is no address of this machine; 0.0.0.0 stands for all that it has")
    return CannotListen("port", f"cannot listen on {host} port {port}: {problem.strerror or problem}; {another}")
