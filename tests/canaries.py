"""`python -m tests.canaries`: listens on every address of this machine and counts who comes. For tests that nobody comes.

Prints the port; then, for each line on its standard input, how many connections there were so far.
"""

import itertools
import selectors
import socket
import sys


def main() -> None:
    chosen = selectors.DefaultSelector()
    listening = _listening(0)
    port = listening.getsockname()[1]
    for one in (listening, sys.stdin):
        chosen.register(one, selectors.EVENT_READ)
    listening.setblocking(False)
    print(port, flush=True)
    visits = 0
    while True:
        asked = any(key.fileobj is sys.stdin for key, _ in chosen.select())
        visits += _accepted(listening)
        if asked and not sys.stdin.readline():
            return
        if asked:
            print(visits, flush=True)


def _accepted(listening: socket.socket) -> int:
    """How many came since the last look."""
    for count in itertools.count():
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            return count
        connection.close()
    raise AssertionError("there is an end to them")


def _listening(port: int) -> socket.socket:
    """On IPv6 and IPv4 alike where there is IPv6, so that mapped addresses arrive too."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1000)
    return socket.create_server(("0.0.0.0", port), backlog=1000)


if __name__ == "__main__":
    main()
