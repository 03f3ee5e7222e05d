"""Uploaded files: kept in a place that the application names, from the request until the job is completed.

Further jobs delete the files. One is added before the files are saved, so that those of a request whose process dies go too.
It runs after an hour, which saving them must not take. Another is added when the endpoint has run.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from starlette.datastructures import UploadFile

from ...app import Demora
from ...core.states import Status
from ...errors import Invalid, JobNotFound, TooLarge
from ...handlers.context import Context
from ...handlers.control import Snooze

CHUNK = 1024 * 1024  # bytes read at once
MOST_FILE = 100 * 1024 * 1024  # bytes
ORPHANED = timedelta(hours=1)  # after which files without a job are deleted
SOON, LEAST_WAIT, MOST_WAIT = timedelta(seconds=10), timedelta(minutes=1), timedelta(days=1)
_NAME = re.compile(r"[\w-]+", re.ASCII)


class UploadStore(Protocol):
    """Keeps uploaded files by name, for web servers and workers. Names have letters, digits, `-` and `_` only."""

    async def save(self, name: str, content: AsyncIterator[bytes]) -> None:
        """Keep a file. It is durable when this returns. `TooLarge` refuses it, and then nothing is kept."""

    def open(self, name: str) -> AsyncIterator[bytes]:
        """Return the content of a file, chunk by chunk. `FileNotFoundError` if there is none of this name."""

    async def delete(self, name: str) -> None:
        """Delete a file, if there is one of this name."""


class UploadFolder:
    """Keeps uploaded files in a folder, which web servers and workers on several machines must share. A file has at most
    `most_bytes`."""

    def __init__(self, folder: Path | str, *, most_bytes: int = MOST_FILE) -> None:
        self._folder, self._most = Path(folder), most_bytes

    async def save(self, name: str, content: AsyncIterator[bytes]) -> None:
        path = self._path(name)
        part = path.with_name(f".{name}.part")
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        try:
            size = 0
            with await asyncio.to_thread(part.open, "wb") as file:
                async for chunk in content:
                    size += len(chunk)
                    if size > self._most:
                        raise TooLarge("file", f"is over the limit of {self._most:,} bytes")
                    await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(_sync, file)
            await asyncio.to_thread(_publish, part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    async def open(self, name: str) -> AsyncIterator[bytes]:
        with await asyncio.to_thread(self._path(name).open, "rb") as file:
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                yield chunk

    async def delete(self, name: str) -> None:
        path = self._path(name)
        for one in (path, path.with_name(f".{name}.part")):  # a process that died has left a part
            await asyncio.to_thread(one.unlink, missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):  # it may come from a payload
            raise Invalid("name", "has letters, digits, - and _ only")
        return self._folder / name


class Uploads:
    """The files of one job, numbered in the order of its form."""

    def __init__(self, store: UploadStore, job_id: str) -> None:
        self._store, self._job_id = store, job_id

    async def save(self, files: Sequence[UploadFile]) -> None:
        for number, file in enumerate(files):
            await self._store.save(self._name(number), _chunks(file))

    def open(self, number: int) -> AsyncIterator[bytes]:
        return self._store.open(self._name(number))

    async def delete(self, count: int) -> None:
        for number in range(count):
            await self._store.delete(self._name(number))

    def _name(self, number: int) -> str:
        return f"{self._job_id}-{number}"


class Deletions:
    """Deletes the files of jobs of one type, each time as a job of its own.

    It waits until the job is completed or does not exist. A job that failed or was cancelled keeps its files, because it may
    be retried by hand.
    """

    def __init__(self, jobs: Demora, job_type: str, store: UploadStore, queue: str | None) -> None:
        self._jobs, self._type, self._store = jobs, f"{job_type}.files", store

        async def delete_files(job: str, files: int, ctx: Context) -> None:
            await self._delete(job, files, ctx.job.scheduled_at)

        jobs.job(self._type, queue=queue, priority="LOW", max_retries=20)(delete_files)

    async def plan(self, job_id: str, count: int, *, after: timedelta) -> None:
        """Have the files of a job deleted after this span, or when it is completed."""
        await self._jobs.enqueue(self._type, {"job": job_id, "files": count}, delay=after)

    async def _delete(self, job_id: str, count: int, due_at: datetime) -> None:
        with contextlib.suppress(JobNotFound):
            job = await self._jobs.get(job_id)
            if job.status is not Status.COMPLETED:
                raise Snooze(min(max(due_at - job.created_at, LEAST_WAIT), MOST_WAIT))  # the older, the longer
        await Uploads(self._store, job_id).delete(count)


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    await file.seek(0)
    while chunk := await file.read(CHUNK):
        yield chunk


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _publish(part: Path, path: Path) -> None:
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
