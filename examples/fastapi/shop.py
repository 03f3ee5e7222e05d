"""A shop that answers requests for reports at once, and builds the reports later."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, UploadFile
from pydantic import BaseModel, PositiveInt

from demora import Demora
from demora.client.client import Client
from demora.contrib.fastapi import AtRequest, UploadFolder, demora_client, later, lifespan
from demora.dashboard import dashboard

jobs = Demora()
web = FastAPI(lifespan=lifespan(jobs, worker=os.environ.get("SHOP_WORKER") == "inside"))
web.mount("/jobs", dashboard(jobs, access="keys"))


class Spec(BaseModel):
    pages: PositiveInt


class Report(BaseModel):
    title: str
    built_in: str


async def get_db() -> AsyncIterator[dict[str, str]]:
    """A connection to your database: opened and closed in the worker."""
    yield {"title": "Sales"}


def current_user(authorization: Annotated[str, Header()] = "") -> str:
    """Who sends the request. The name is stored, the header is not."""
    if not authorization.startswith("Bearer "):
        raise HTTPException(401)
    return authorization.removeprefix("Bearer ")


def quota(spec: Spec) -> None:
    if spec.pages > 100:
        raise HTTPException(429, "at most 100 pages")


@web.post("/reports", status_code=202)
@later(jobs, "report.build", check=quota)
async def report(
    spec: Spec,
    db: Annotated[dict[str, str], Depends(get_db)],
    user: Annotated[str, Depends(current_user), AtRequest],
) -> Report:
    """Build a report."""
    if spec.pages == 13:
        raise HTTPException(404, "there is no page 13")
    return Report(title=f"{db['title']}, {spec.pages} pages, for {user}", built_in=str(os.getpid()))


@web.post("/photos", status_code=202)
@later(jobs, "photo.measure", files=UploadFolder("uploads", most_bytes=20 * 1024 * 1024))
async def measure(photo: UploadFile) -> dict[str, int]:
    """Measure a photo. Web servers and workers share the folder."""
    return {"bytes": len(await photo.read())}


@jobs.job("mail.send", max_retries=5)
async def send_mail(to: str) -> str:
    return f"sent to {to}"


@web.post("/mails", status_code=202)
async def mail(to: str, client: Annotated[Client, Depends(demora_client)]) -> dict[str, str]:
    job = await client.enqueue("mail.send", {"to": to}, delay="5s")
    return {"job": job.id}
