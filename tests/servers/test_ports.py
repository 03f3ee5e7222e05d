"""A port that was handed out belongs to the server that asks for it, also between two starts of that server."""

import socket
import sys

import pytest

from tests.servers.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are reserved on Linux only")


def test_a_server_can_listen_on_its_port_again_and_again() -> None:
    port = free_port()
    for _ in range(3):
        with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()


def test_no_connection_gets_a_reserved_port_as_its_own() -> None:
    with socket.socket() as connection, pytest.raises(OSError, match="in use"):
        connection.bind(("127.0.0.1", free_port()))


def test_a_server_that_is_down_refuses_connections() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port()))


def test_no_port_is_handed_out_twice() -> None:
    assert len({free_port() for _ in range(100)}) == 100
