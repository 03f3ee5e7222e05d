"""Applications in FastAPI, Django and Flask, and pydantic's models, as type checkers must see them. See `shop.py`."""

from collections.abc import AsyncIterator
from typing import Annotated, assert_type

import flask
from django.tasks import task
from fastapi import Depends, FastAPI, HTTPException, Request, UploadFile
from pydantic import BaseModel, Field

from demora import Demora, Job
from demora.api import api
from demora.client.client import Client
from demora.contrib.django import DemoraBackend
from demora.contrib.django.applications import TasksApplication, application
from demora.contrib.fastapi import AtRequest, UploadFolder, add_job_routes, demora_client, later, lifespan
from demora.contrib.flask import FlaskDemora
from demora.contrib.sentry import report_errors
from demora.contrib.starlette import lifespan as starlette_lifespan
from demora.core.access import Scope
from demora.dashboard import dashboard
from demora.testing import Drained, Sandbox

jobs = Demora()
web = FastAPI(lifespan=lifespan(jobs, worker=True, concurrency=2))
add_job_routes(web, jobs, prefix="/later")
report_errors(jobs)
starlette_lifespan(jobs)


class Spec(BaseModel):
    pages: int


class Report(BaseModel):
    title: str


@jobs.job("report.print")
async def print_report(spec: Spec, copies: Annotated[int, Field(gt=0)] = 1) -> Report:
    return Report(title=f"{spec.pages} {copies}")


async def get_db() -> AsyncIterator[str]:
    yield "db"


def quota(spec: Spec) -> None:
    raise HTTPException(429)


@web.post("/reports", status_code=202)
@later(jobs, "report.build", check=quota, headers=("x-trace",), answer=lambda job: {"ticket": job.id}, max_retries=2)
async def report(spec: Spec, db: Annotated[str, Depends(get_db)], user: Annotated[str, AtRequest]) -> Report:
    return Report(title=db + user)


def staff(request: Request) -> Scope | None:
    return Scope.READ if request.headers.get("x-user") else None


async def users(request: Request) -> set[Scope]:
    return {Scope.SUBMIT, Scope.READ}


web.mount("/jobs", dashboard(jobs, access=staff))
web.mount("/queue", api(jobs, access=users))
web.mount("/keys", api(jobs, access="keys"))
web.mount("/none", api(jobs, access=None))  # error


@web.post("/photos")
@later(jobs, "photo.scale", files=UploadFolder("uploads", most_bytes=1000))
async def scale(photo: UploadFile) -> None: ...


@later(jobs, "report.drop", retries=2)  # error
async def drop() -> None: ...


@web.post("/prints")
async def prints(spec: Spec, client: Annotated[Client, Depends(demora_client)]) -> str:
    job = await print_report.enqueue(spec=spec)
    assert_type(job, Job[Report])
    assert_type(await jobs.result(job), Report)
    await print_report.enqueue(spec=5)  # error
    return (await client.get(job.id)).id


mails = FlaskDemora()


@mails.every("1h")
@mails.job("mail.send", queue="mail")
def send(to: str) -> int:
    return len(to)


@mails.job("mail.drop", quue="mail")  # error
def drop_mail(to: str) -> None: ...


def create_app() -> flask.Flask:
    app = flask.Flask(__name__)
    mails.init_app(app)
    assert_type(mails.of(app), Demora)
    assert_type(send.enqueue_blocking(to="a@b.c"), Job[int])
    assert_type(mails.blocking.result(send.enqueue_blocking(to="a@b.c")), int)
    send.enqueue_blocking(tto="a@b.c")  # error
    mails.init_app("app")  # error
    return app


report_errors(mails)
report_errors(application("default"))
report_errors(web)  # error


def test_mails(app: flask.Flask) -> None:
    with Sandbox(mails) as sandbox:
        assert_type(sandbox.app, Demora)
        assert_type(sandbox.blocking.drain(), Drained)
    Sandbox(app)  # error


class ShopBackend(DemoraBackend):
    supports_priority = False


@task(priority=10, queue_name="orders")
def confirm(order_id: int) -> str:
    return str(order_id)


def order() -> None:
    result = confirm.using(priority=20).enqueue(7)
    assert_type(result.return_value, str)
    confirm.enqueue("seven")  # error
    assert_type(application("default"), TasksApplication)
    assert_type(application("default").blocking.get(result.id), Job)
    application(7)  # error
    with Sandbox(application("default")) as sandbox:
        assert_type(sandbox.blocking.enqueued("shop.tasks.confirm"), list[Job])
