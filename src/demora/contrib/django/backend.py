"""`DemoraBackend`: Django's tasks as jobs of demora."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models, transaction
from django.utils import timezone

from ...app import Demora
from ...core.job import NewJob
from ...core.request import JobOptions, check_queue
from ...errors import BadHandler, Invalid, JobNotFound, did_you_mean
from .applications import OPTIONS, TasksApplication, application
from .databases import database_url, django_alias
from .results import from_django, new_result, priority_of, result_of
from .tasks_api import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from .transactions import AfterCommit, in_transaction

TRANSACTIONS = ("auto", "join", "on_commit", "none")


class DemoraBackend(BaseTaskBackend):
    """A task backend for Django 6, and for the package django-tasks before it.

    `OPTIONS["transaction"]` says how a task that is enqueued inside `atomic` is stored: `join` stores it in the transaction,
    on the same PostgreSQL with psycopg 3; `on_commit` stores it after the commit; `none` stores it at once; `auto`, the
    default, joins where that is possible, and otherwise waits for the commit.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: AnyTask) -> None:
        """Refuse a task that cannot be run, and register it otherwise."""
        super().validate_task(task)
        try:
            check_queue(task.queue_name, "queue_name")
            self._app.register(task)
        except (Invalid, BadHandler) as problem:
            raise InvalidTask(str(problem)) from problem

    def enqueue(self, task: AnyTask, args: Any, kwargs: Any) -> Any:
        """Store a job that runs the task. Its id is known at once. Inside a transaction the job exists once that commits."""
        self.validate_task(task)
        app = self._app
        payload = {"args": _normalized(args, "args"), "kwargs": _normalized(kwargs, "kwargs")}
        client = app.blocking.run("enqueue", Demora.open)
        job = client.make(task.module_path, payload | _exact_priority(task), **_options(task))
        result = new_result(task, job.id, payload["args"], payload["kwargs"], timezone.now())
        self._store(app, job, result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Return the result of a task; `TaskResultDoesNotExist` until the transaction that enqueued it has committed."""
        self._app.store_waiting()
        try:
            job = self._app.blocking.get(str(result_id))
        except JobNotFound:
            raise TaskResultDoesNotExist(result_id) from None
        task = self._app.find_task(job.type)
        if task is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(job, task)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Return what is wrong with the settings of this backend. Opens no database."""
        return [*super().check(**kwargs), *self._problems()]

    def _problems(self) -> Iterator[checks.CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        for unknown in sorted(self.options.keys() - OPTIONS):
            yield checks.Error(
                f"{where} has an unknown option {unknown!r}{did_you_mean(unknown, OPTIONS)}", id="demora.E001"
            )
        if self._transaction not in TRANSACTIONS:
            known = ", ".join(TRANSACTIONS)
            yield checks.Error(f"{where}: transaction must be one of {known}, not {self._transaction!r}", id="demora.E002")
        try:
            url = database_url(self.options)
        except ImproperlyConfigured as problem:
            yield checks.Error(f"{where}: {problem}", id="demora.E003")
        else:
            vendor = connections[django_alias(self.options)].vendor
            if self._transaction == "join" and (vendor != "postgresql" or not url.startswith("postgres")):
                yield checks.Error(f"{where}: join needs PostgreSQL for Django and for the jobs", id="demora.E004")
        if not apps.is_installed("demora.contrib.django"):
            hint = 'add "demora.contrib.django" to INSTALLED_APPS'
            yield checks.Warning(f"{where}: there is no command manage.py demora", hint=hint, id="demora.W001")

    @property
    def _app(self) -> TasksApplication:
        return application(self.alias)

    @property
    def _transaction(self) -> str:
        mode: str = self.options.get("transaction", "auto")
        return mode

    def _store(self, app: TasksApplication, job: NewJob, result: AnyResult) -> None:
        alias = django_alias(self.options)
        connection, in_test = connections[alias], app.sandbox is not None
        if self._transaction == "none" or not in_transaction(connection, in_test=in_test):
            self._add(app, [job], result)
        elif in_test or self._transaction == "on_commit" or not self._joined(app, job, result, connection):
            after = AfterCommit(connection, lambda: self._add(app, [job], result))
            transaction.on_commit(after, using=alias)
            if in_test:
                app.waiting.append(after)

    def _joined(self, app: TasksApplication, job: NewJob, result: AnyResult, connection: Any) -> bool:
        """Store a job in the transaction of a connection. Returns False if `auto` must wait for the commit instead."""
        try:
            self._add(app, [job], result, within=connection.connection)
        except Invalid as problem:
            if self._transaction == "join" or problem.field != "within":
                raise
            return False
        return True

    def _add(self, app: TasksApplication, jobs: Sequence[NewJob], result: AnyResult, within: Any = None) -> None:
        app.blocking.enqueue_many(jobs, within=within)
        task_enqueued.send(type(self), task_result=result)


def _options(task: AnyTask) -> JobOptions:
    at = None if task.run_after is None else from_django(task.run_after)
    return {"queue": task.queue_name, "priority": priority_of(task.priority), "at": at}


def _exact_priority(task: AnyTask) -> dict[str, int]:
    """Return the part of the payload that keeps the exact number. The job itself has only one of four priorities."""
    return {"priority": task.priority} if task.priority else {}


def _normalized(values: Any, name: str) -> Any:
    """Return arguments as JSON. `TypeError` if one of them is no JSON value; for a model it names the way."""
    for key, value in enumerate(values) if name == "args" else values.items():
        if isinstance(value, models.Model):
            kind = type(value).__name__
            raise TypeError(f"{name}[{key!r}] is a {kind}, which is no JSON: pass its primary key and read it in the task")
    return normalize_json(values)
