"""Uploaded files: kept by the application's store until their job is completed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, File, Form, HTTPException, Request, UploadFile
from pydantic import BaseModel

from demora import Status
from demora.contrib.fastapi import UploadFolder, UploadStore, later
from demora.errors import BadHandler, Invalid, StoreError
from demora.testing import Sandbox
from tests.contrib.sites import Site

HOUR = "61m"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "uploads"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


class Shop:
    """A site with one endpoint that takes a file, in a sandbox."""

    def __init__(self, store: UploadStore, folder: Path, **options: Any) -> None:
        self.site, self.folder, self.fails = Site(), folder, 0
        self.sandbox = Sandbox(self.site.jobs)

        @self.site.web.post("/photos", status_code=202)
        @later(self.site.jobs, "photo.scale", files=store, **options)
        async def scale(photo: UploadFile, title: Annotated[str, Form()] = "-") -> str:
            if self.fails:
                self.fails -= 1
                raise RuntimeError("out of memory")
            return f"{title} {photo.filename} {photo.content_type} {(await photo.read()).decode()}"

    async def send(self, content: bytes = b"pixels", title: str = "cat", **headers: str) -> httpx.Response:
        return await self.site.http.post(
            "/photos",
            files={"photo": ("cat.png", content, "image/png")},
            data={"title": title},
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    def files(self) -> list[str]:
        return names_in(self.folder)

    async def jobs(self) -> list[Any]:
        return await self.sandbox.enqueued("photo.scale")


@pytest.fixture
async def shop(folder: Path) -> AsyncIterator[Shop]:
    shop = Shop(UploadFolder(folder, most_bytes=1000), folder, retry_delay="10s", max_retries=1)
    async with shop.site.http:
        with shop.sandbox:
            yield shop


async def test_a_file_is_kept_until_its_job_is_completed(shop: Shop) -> None:
    added = await shop.send()
    id = added.json()["id"]
    assert shop.files() == [f"{id}-0"]
    assert (shop.folder / f"{id}-0").read_bytes() == b"pixels"
    assert "pixels" not in str((await shop.jobs())[0].payload)

    assert not (await shop.sandbox.drain()).failures
    assert (await shop.site.http.get(added.json()["resultUrl"])).json() == "cat cat.png image/png pixels"
    assert not (await shop.sandbox.advance("1m")).failures
    assert shop.files() == []
    assert not (await shop.sandbox.advance(HOUR)).failures


async def test_a_run_that_fails_finds_the_file_again_when_it_is_retried(shop: Shop) -> None:
    shop.fails = 1
    await shop.send()
    await shop.sandbox.drain()
    assert [job.status for job in await shop.jobs()] == [Status.RETRYING]
    await shop.sandbox.advance("1m")
    assert [job.result for job in await shop.jobs()] == ["cat cat.png image/png pixels"]


class Away(UploadFolder):
    """A place that cannot be reached at first."""

    away = True

    async def open(self, name: str) -> AsyncIterator[bytes]:
        if self.away:
            self.away = False
            raise TimeoutError("no answer")
        async for chunk in super().open(name):
            yield chunk


async def test_a_file_that_cannot_be_read_is_read_again_later(folder: Path) -> None:
    shop = Shop(Away(folder), folder, retry_delay="10s", max_retries=1)
    with shop.sandbox:
        await shop.send()
        await shop.sandbox.drain()
        [job] = await shop.jobs()
        assert (job.status, job.error) == (Status.RETRYING, "TimeoutError: no answer")
        await shop.sandbox.advance("1m")
        assert [job.result for job in await shop.jobs()] == ["cat cat.png image/png pixels"]


async def test_a_failed_job_keeps_its_file_and_can_be_retried_by_hand_until_it_is_deleted(shop: Shop) -> None:
    shop.fails = 2
    first = (await shop.send()).json()["id"]
    await shop.sandbox.advance("1h")
    shop.fails = 2
    other = (await shop.send()).json()["id"]
    await shop.sandbox.advance("2d")
    assert [job.status for job in await shop.jobs()] == [Status.FAILED, Status.FAILED]
    assert shop.files() == [f"{first}-0", f"{other}-0"]

    await shop.site.jobs.retry(first)
    await (await shop.site.jobs.open()).delete(other)
    await shop.sandbox.advance("2d")
    assert [job.result for job in await shop.jobs()] == ["cat cat.png image/png pixels"]
    assert shop.files() == []


async def test_a_file_that_is_too_large_is_refused_and_not_kept(shop: Shop) -> None:
    refused = await shop.send(b"x" * 1001)
    assert refused.status_code == 413
    assert "1,000 bytes" in refused.json()["detail"]
    assert (shop.files(), await shop.jobs()) == ([], [])


async def test_a_refused_request_keeps_nothing(folder: Path) -> None:
    def closed(photo: UploadFile) -> None:
        raise HTTPException(403)

    shop = Shop(UploadFolder(folder), folder, check=closed)
    with shop.sandbox:
        assert (await shop.send()).status_code == 403
        assert (await shop.site.http.post("/photos", data={"title": "cat"})).status_code == 422
        assert (shop.files(), await shop.sandbox.enqueued()) == ([], [])


async def test_a_repeated_request_gives_the_same_job_and_keeps_its_files_once(shop: Shop) -> None:
    first = await shop.send(idempotency_key="k")
    again = await shop.send(idempotency_key="k")
    assert first.json()["id"] == again.json()["id"]
    other = await shop.send(b"other pixels", idempotency_key="k")
    assert other.status_code == 422
    assert shop.files() == [f"{first.json()['id']}-0"]

    await shop.sandbox.advance(HOUR)
    assert [job.result for job in await shop.jobs()] == ["cat cat.png image/png pixels"]
    assert shop.files() == []
    assert (await shop.send(idempotency_key="k")).json()["id"] == first.json()["id"]
    assert shop.files() == []


async def test_files_stay_if_it_is_not_known_whether_the_job_was_added(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await shop.site.jobs.open()
    add, losing = client.add, True

    async def unanswered(jobs: Any, **options: Any) -> Any:
        nonlocal losing
        added = await add(jobs, **options)
        if losing and jobs[0].type == "photo.scale":
            losing = False
            raise StoreError("the connection was lost after the commit")
        return added

    monkeypatch.setattr(client, "add", unanswered)
    assert (await shop.send(idempotency_key="k")).status_code == 503
    again = await shop.send(idempotency_key="k")
    assert shop.files() == [f"{again.json()['id']}-0"]
    assert not (await shop.sandbox.drain()).failures
    assert (await shop.site.http.get(again.json()["resultUrl"])).json() == "cat cat.png image/png pixels"
    await shop.sandbox.advance(HOUR)
    assert shop.files() == []


class Died(BaseException):
    """The web server was killed."""


class Dying(UploadFolder):
    async def save(self, name: str, content: AsyncIterator[bytes]) -> None:
        await super().save(name, content)
        raise Died


async def test_files_of_a_request_whose_server_died_are_deleted(folder: Path) -> None:
    shop = Shop(Dying(folder), folder)
    with shop.sandbox:
        with pytest.raises(Died):
            await shop.send()
        assert len(shop.files()) == 1
        assert await shop.jobs() == []
        await shop.sandbox.advance("30m")
        assert len(shop.files()) == 1
        await shop.sandbox.advance(HOUR)
        assert shop.files() == []


class Album(BaseModel):
    title: str
    pages: list[UploadFile]


async def test_forms_may_be_declared_in_every_way_of_fastapi(site: Site, folder: Path) -> None:
    def owner(owner: Annotated[str, Form()]) -> str:
        return owner

    @site.web.post("/files")
    @later(site.jobs, "file.read", files=UploadFolder(folder))
    async def read(
        one: Annotated[bytes, File()],
        many: list[UploadFile],
        tags: Annotated[list[str], Form()],
        owner: Annotated[str, Depends(owner)],
        optional: UploadFile | None = None,
    ) -> list[Any]:
        contents = [(file.filename, (await file.read()).hex(), file.headers.get("content-type")) for file in many]
        return [one.hex(), contents, tags, owner, optional]

    name = 'añ"o\\ 1;2.png'
    sent = [
        ("many", (name, b"\xff\r\n--x", "image/png")),
        ("one", ("1", b"1")),
        ("many", ("b", b"", "text/plain; charset=utf-8")),
    ]
    added = await site.http.post("/files", files=sent, data={"tags": ["a", "b\r\n--"], "owner": "ada"})
    done = await site.ran(added)
    received = done.json()[1][0][0]
    assert done.json() == [
        "31",
        [[received, "ff0d0a2d2d78", "image/png"], ["b", "", "text/plain; charset=utf-8"]],
        ["a", "b\r\n--"],
        "ada",
        None,
    ]
    stored = (await site.jobs.get(added.json()["id"])).payload["request"]["form"]
    assert next(part["filename"] for part in stored if "filename" in part) == received
    assert len(names_in(folder)) == 3


async def test_a_form_without_files_is_stored_whole(site: Site, folder: Path) -> None:
    class Order(BaseModel):
        item: str
        count: int

    @site.web.post("/orders")
    @later(site.jobs, "order.place", files=UploadFolder(folder))
    async def place(order: Annotated[Order, Form()]) -> str:
        return f"{order.count} {order.item}"

    added = await site.http.post("/orders", data={"item": "año & co", "count": "2"})
    assert (await site.ran(added)).json() == "2 año & co"
    assert [job.type for job in (await site.jobs.find()).jobs] == ["order.place"]
    assert names_in(folder) == []


async def test_an_endpoint_that_takes_the_request_reads_its_form(site: Site, folder: Path) -> None:
    @site.web.post("/forms")
    @later(site.jobs, "form.read", files=UploadFolder(folder))
    async def read(request: Request) -> list[str]:
        async with request.form() as form:
            file = form["file"]
            assert not isinstance(file, str)
            return [str(form["name"]), (await file.read()).decode()]

    added = await site.http.post("/forms", files={"file": ("a", b"abc")}, data={"name": "ada"})
    assert (await site.ran(added)).json() == ["ada", "abc"]


async def test_a_form_without_a_place_for_its_files_is_refused(site: Site) -> None:
    async def read(file: UploadFile) -> None: ...

    with pytest.raises(BadHandler, match=r"files=UploadFolder"):
        later(site.jobs, "file.read")(read)


@pytest.mark.parametrize("name", ["../a", "a/b", "", ".", "a\0", "a\n"])
async def test_a_folder_has_no_files_elsewhere(folder: Path, name: str) -> None:
    with pytest.raises(Invalid):
        await UploadFolder(folder).delete(name)


async def test_a_file_of_another_size_than_announced_leaves_no_part(folder: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"a"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await UploadFolder(folder).save("a", broken())
    assert names_in(folder) == []
