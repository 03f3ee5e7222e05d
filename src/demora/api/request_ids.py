"""Names each request: with the id that the caller sends as `X-Request-Id`, or with a new one.

The id is part of the answer, of a problem, and of the log line of a failed request. A caller can only send visible ASCII
characters, so that its id cannot end a log line, forge another one, or change what a terminal shows.
"""

import re

from starlette.datastructures import Headers
from starlette.types import Message, Send
from uuid_utils import uuid4

HEADER = "x-request-id"
_HEADER = HEADER.encode()
_WELL_FORMED = re.compile(r"[!-~]{1,128}")


def request_id(headers: Headers) -> str:
    """Return the id that the caller sent once and well-formed, or else a new one."""
    sent = headers.getlist(HEADER)
    if len(sent) == 1 and _WELL_FORMED.fullmatch(sent[0]):
        return sent[0]
    return new_request_id()


def new_request_id() -> str:
    """Return an id that no other request has."""
    hexadecimal: str = uuid4().hex
    return hexadecimal


def id_header(id: str) -> tuple[bytes, bytes]:
    """Return the header of an answer that names its request."""
    return _HEADER, id.encode()


def with_id(send: Send, id: str) -> Send:
    """Return a `send` that adds the id to the headers of the answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"].append(id_header(id))
        await send(message)

    return sending
