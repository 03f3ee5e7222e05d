"""A DNS server for tests, whose answers may change from one question to the next, and a resolver that asks only it."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Self

A, AAAA = 1, 28


class Names(asyncio.DatagramProtocol):
    """`async with Names({"a.test": [["1.2.3.4"], ["127.0.0.1"]]}) as names:`; the n-th question for a
    kind of address gets the n-th list, and the last one from then on."""

    def __init__(self, answers: dict[str, Sequence[Sequence[str]]]) -> None:
        self.answers, self.asked = answers, Counter[tuple[str, int]]()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        self._address = self._transport.get_extra_info("sockname")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._transport.close()

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        name, kind, question = _question(data)
        rounds = self.answers.get(name, [[]])
        chosen = rounds[min(self.asked[name, kind], len(rounds) - 1)]
        self.asked[name, kind] += 1
        records = [ip_address(text).packed for text in chosen if (":" in text) == (kind == AAAA)]
        head = data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(records), 0, 0)
        rows = [struct.pack(">HHHLH", 0xC00C, kind, 1, 0, len(packed)) + packed for packed in records]
        self._transport.sendto(head + question + b"".join(rows), sender)

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a name, IPv4 first, as a resolver gives them."""
        found = [address for kind in (A, AAAA) for address in await self._ask(host, kind)]
        if not found:
            raise OSError(socket.EAI_NONAME, "Name or service not known")
        return found

    async def _ask(self, host: str, kind: int) -> list[str]:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            await loop.sock_connect(asking, self._address)
            labels = b"".join(bytes([len(label)]) + label.encode() for label in host.split("."))
            question = labels + b"\0" + struct.pack(">HH", kind, 1)
            await loop.sock_sendall(asking, struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question)
            return _addresses(await loop.sock_recv(asking, 4096), 12 + len(question))


def _question(data: bytes) -> tuple[str, int, bytes]:
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels), struct.unpack(">H", data[at + 1 : at + 3])[0], data[12 : at + 5]


def _addresses(data: bytes, at: int) -> list[str]:
    found = []
    for _ in range(struct.unpack(">H", data[6:8])[0]):
        size = struct.unpack(">H", data[at + 10 : at + 12])[0]
        found.append(str(ip_address(data[at + 12 : at + 12 + size])))
        at += 12 + size
    return found
