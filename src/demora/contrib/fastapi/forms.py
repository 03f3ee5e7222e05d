"""Forms: their fields are stored with the job, their files are kept elsewhere, and the worker gets both as a form again."""

import hashlib
import secrets
from collections.abc import AsyncIterator

import msgspec
from fastapi import Request
from starlette.datastructures import UploadFile

from .uploads import CHUNK, Uploads

FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
BOUNDARY = f"demora-{secrets.token_hex(16)}"  # of this process, and unknown to those who send forms


class StoredPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field of a form with its value, or a file. The digest shows whether a repeated request has the same files."""

    name: str
    value: str | None = None
    filename: str | None = None
    type: str | None = None
    digest: str | None = None

    @property
    def is_file(self) -> bool:
        return self.value is None


async def form_of(request: Request) -> tuple[list[StoredPart], list[UploadFile]]:
    """Return the parts of a form, and its files in the same order."""
    parts, files = list[StoredPart](), list[UploadFile]()
    for name, value in (await request.form()).multi_items():
        if isinstance(value, UploadFile):
            digest = await _digest(value)
            parts.append(StoredPart(name, filename=value.filename, type=value.content_type, digest=digest))
            files.append(value)
        else:
            parts.append(StoredPart(name, value))
    return parts, files


async def multipart(parts: list[StoredPart], uploads: Uploads | None) -> AsyncIterator[bytes]:
    """Yield a form with these parts in the format multipart/form-data."""
    files = 0
    for part in parts:
        yield _head(part)
        if part.value is not None:
            yield part.value.encode()
        elif uploads is not None:
            async for chunk in uploads.open(files):
                yield chunk
            files += 1
        yield b"\r\n"
    yield f"--{BOUNDARY}--\r\n".encode()


def _head(part: StoredPart) -> bytes:
    lines = [f"--{BOUNDARY}", f"Content-Disposition: form-data; name={_quoted(part.name)}"]
    if part.is_file:
        lines[1] += f"; filename={_quoted(part.filename or '')}"
    if part.type:
        lines.append(f"Content-Type: {_one_line(part.type)}")
    return "\r\n".join([*lines, "", ""]).encode()


def _quoted(text: str) -> str:
    return '"' + _one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


async def _digest(file: UploadFile) -> str:
    digest = hashlib.sha256()
    await file.seek(0)
    while chunk := await file.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
