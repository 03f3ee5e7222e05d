"""A request as a job keeps it: method, path, query, chosen headers, body, and the values of dependencies that ran in it."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from fastapi import Request
from fastapi.encoders import jsonable_encoder
from starlette.datastructures import UploadFile

from ...core.payload import MOST_BYTES
from ...errors import TooLarge
from .declaration import SECRET_HEADERS, Declaration
from .forms import BOUNDARY, FORMS, StoredPart, form_of, multipart
from .uploads import Uploads

VALUES = "demora_values"  # where a replayed request has the stored values, in its scope


class StoredRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored request. Its body is JSON (`body`), a `text`, other `data` or a `form`, or it has none."""

    method: str
    path: str
    path_params: dict[str, Any] = {}
    query: str = ""
    headers: list[tuple[str, str]] = []
    body: Any = msgspec.UNSET
    text: str | None = None
    data: bytes | None = None
    form: list[StoredPart] | None = None
    values: dict[str, Any] = {}

    def scope(self) -> dict[str, Any]:
        """Return the ASGI scope of a request like the stored one. It has no client, and no header that was not chosen."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        if self.form is not None:
            headers.append((b"content-type", f"multipart/form-data; boundary={BOUNDARY}".encode()))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": quote(self.path).encode(),
            "root_path": "",
            "query_string": self.query.encode("latin-1"),
            "headers": headers,
            "path_params": self.path_params,
            VALUES: self.values,
        }

    async def content(self, uploads: Uploads | None) -> AsyncIterator[bytes]:
        """Yield the body as it is sent again, with the files from where they are kept."""
        if self.form is not None:
            async for chunk in multipart(self.form, uploads):
                yield chunk
        elif self.body is not msgspec.UNSET:
            yield msgspec.json.encode(self.body)
        else:
            yield self.data or (self.text or "").encode()


async def store_request(
    request: Request, declaration: Declaration, *, headers: Iterable[str], values: Mapping[str, Any], keeps_files: bool
) -> tuple[StoredRequest, list[UploadFile]]:
    """Return a request to store, with the headers of these names, and the files in it, which are kept elsewhere.

    Credentials are always left out. `TooLarge` if the body is too large to be stored.
    """
    body, files, kept = dict[str, Any](), list[UploadFile](), {name.lower() for name in headers}
    if declaration.has_body and keeps_files and _kind(request) in FORMS:
        body["form"], files = await form_of(request)
        kept.discard("content-type")
    elif declaration.has_body:
        body = await _content(request, exactly=declaration.takes_request)
        kept.add("content-type")
    stored = StoredRequest(
        method=request.method,
        path=request.url.path,
        path_params=jsonable_encoder(request.path_params),
        query=request.scope["query_string"].decode("latin-1"),
        headers=[item for item in request.headers.items() if item[0] in kept - SECRET_HEADERS],
        values=dict(values),
        **body,
    )
    return stored, files


async def _content(request: Request, *, exactly: bool) -> dict[str, Any]:
    """Return the body of a request: as JSON, unless an endpoint wants it byte by byte, for instance to check a signature."""
    content, kind = await _read(request), _kind(request)
    if not content:
        return {}
    if not exactly and (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
        return {"body": await request.json()}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"data": content}
    return {"data": content} if "\0" in text else {"text": text}


async def _read(request: Request) -> bytes:
    """Return the body, which FastAPI has read only if the endpoint has a parameter for it."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_BYTES:
            raise TooLarge("body", f"is over the limit of {MOST_BYTES:,} bytes")
    return bytes(content)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
