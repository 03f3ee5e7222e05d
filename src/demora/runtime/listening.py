"""The listening socket of a process."""

import socket
from ipaddress import ip_address

from ..api.http_server.server import BACKLOG
from ..core.outbound.targets import Address
from ..system.addresses import cannot_listen, in_url


def listen(address: Address, port: int, choice: str = "--port or DEMORA_PORT") -> socket.socket:
    """Return a listening socket. Raises `CannotListen` with the reason if there is none; `choice` names the option and the
    setting for another port."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((str(address), port), family=family, backlog=BACKLOG)
    except OSError as problem:
        raise cannot_listen(problem, str(address), port, choice) from problem


def address_of(listener: socket.socket) -> str:
    """Return the URL of a listener on this machine: `http://127.0.0.1:8080`."""
    host, port = listener.getsockname()[:2]
    return f"http://{in_url(ip_address(host))}:{port}"
