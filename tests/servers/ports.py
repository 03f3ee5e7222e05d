"""Ports for servers that the tests start, also for those that are killed and start again on the same port."""

import socket
import sys

_reserved: list[socket.socket] = []


def free_port() -> int:
    """Return a port of 127.0.0.1 that stays reserved until this process ends: only a server that asks for it gets it.

    A port that is merely free now can become the local port of any connection that another process opens, above all
    while its server is down and its clients keep trying. A socket that is bound and does not listen prevents that. It
    allows reuse of its address only after it was bound, so that no other reservation gets the same port.
    """
    reservation = socket.socket()
    reservation.bind(("127.0.0.1", 0))
    port: int = reservation.getsockname()[1]
    if sys.platform == "linux":  # elsewhere it would keep the server out as well
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(reservation)
    else:
        reservation.close()
    return port
