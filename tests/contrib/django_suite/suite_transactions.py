"""Tasks that are enqueued inside a transaction of Django."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction
from shop import tasks
from shop.models import Order

from demora.contrib.django.applications import TasksApplication, application
from demora.contrib.django.backend import DemoraBackend
from demora.contrib.django.tasks_api import TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from demora.errors import Invalid

ON_POSTGRES = "SUITE_POSTGRES" in os.environ
CAN_JOIN = ON_POSTGRES and os.environ.get("SUITE_WITHOUT") != "psycopg"
needs_joining = pytest.mark.skipif(not CAN_JOIN, reason="joining needs PostgreSQL and psycopg 3")
needs_postgres = pytest.mark.skipif(not ON_POSTGRES, reason="Django is not on PostgreSQL")
AT_COMMIT = ("default", "after")  # `auto` and `on_commit`


@pytest.fixture(autouse=True)
def empty() -> None:
    app = application("default")
    for job in app.blocking.find(limit=200).jobs:
        if not job.status.ended:
            app.blocking.cancel(job.id)
        app.blocking.delete(job.id)


def roll_back(enqueue: Callable[[], object]) -> None:
    """Enqueue in a transaction that is rolled back."""
    try:
        with transaction.atomic():
            enqueue()
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


def stored(alias: str = "default") -> list[str]:
    return [job.type for job in application(alias).blocking.find(limit=200).jobs]


@pytest.mark.skipif(os.environ.get("SUITE_WITHOUT") != "psycopg", reason="psycopg 3 is there")
def test_the_driver_is_psycopg2() -> None:
    connection.ensure_connection()
    assert type(connection.connection).__module__.startswith("psycopg2")


@pytest.mark.parametrize("alias", AT_COMMIT)
def test_a_job_exists_once_the_transaction_commits(alias: str) -> None:
    with transaction.atomic():
        Order.objects.create(name="Lima")
        result = tasks.add.using(backend=alias).enqueue(1)
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
        assert stored() == []
    result.refresh()
    assert (result.status, stored()) == (TaskResultStatus.READY, ["shop.tasks.add"])


@pytest.mark.parametrize("alias", AT_COMMIT)
def test_a_job_of_a_transaction_that_is_rolled_back_does_not_exist(alias: str) -> None:
    task = tasks.add.using(backend=alias)
    roll_back(lambda: task.enqueue(1))
    assert stored() == []
    with transaction.atomic():
        roll_back(lambda: task.enqueue(1))
        tasks.odd.using(backend=alias).enqueue()
    assert stored() == ["shop.tasks.odd"]


def test_without_transactions_a_job_exists_at_once() -> None:
    roll_back(lambda: tasks.add.using(backend="at_once").enqueue(1))
    assert stored() == ["shop.tasks.add"]


def test_outside_of_a_transaction_a_job_exists_at_once() -> None:
    result = tasks.add.enqueue(1)
    result.refresh()
    assert result.status == TaskResultStatus.READY


@pytest.mark.parametrize("alias", AT_COMMIT)
async def test_an_async_caller_enqueues_on_the_thread_of_its_connection(alias: str) -> None:
    enqueue = async_to_sync(tasks.add.using(backend=alias).aenqueue)
    await sync_to_async(roll_back)(lambda: enqueue(1))
    assert await sync_to_async(stored)() == []


@needs_joining
def test_auto_joins_the_transaction_on_the_same_postgresql() -> None:
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from demora.jobs where id = %s", [result.id])
            assert cursor.fetchone() == (1,)


@pytest.mark.skipif(CAN_JOIN, reason="joining is possible")
def test_join_is_refused_where_it_is_impossible() -> None:
    backend = DemoraBackend("default", {"OPTIONS": {"transaction": "join"}, "QUEUES": []})
    with pytest.raises(Invalid, match="within"), transaction.atomic():
        backend.enqueue(tasks.add, [1], {})


KILLED = """
    import itertools, os, signal, django, psycopg
    django.setup()
    from django.db import connection, transaction
    from shop import tasks
    from shop.models import Order

    class Deadly:
        left = 0

        @classmethod
        def step(cls):
            cls.left -= 1
            if cls.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(call):
        def called(*args, **kwargs):
            Deadly.step()
            answer = call(*args, **kwargs)
            Deadly.step()
            return answer
        return called

    psycopg.Cursor.execute = around(psycopg.Cursor.execute)  # also those of demora in the transaction
    psycopg.Connection.commit = around(psycopg.Connection.commit)

    def place_order(name):
        connection.ensure_connection()
        Deadly.left = int(name)
        with transaction.atomic():
            Order.objects.create(name=name)
            tasks.odd.using(queue_name=f"q{name}").enqueue()

    for point in itertools.count(1):
        child = os.fork()
        if not child:
            place_order(str(point))
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            print(point)
            break
"""


@needs_joining
def test_a_process_killed_at_any_statement_leaves_the_order_and_its_job_or_neither() -> None:
    """Each process is killed one step later than the one before: before or after a statement of the transaction, the
    commit included. The last one lives."""
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    points = int(run.stdout)
    jobs = application("default").blocking.find(limit=200).jobs
    assert points > 8  # the order, the statements that add the job, and the commit
    orders = {f"q{name}" for name in Order.objects.values_list("name", flat=True)}
    assert orders == {job.queue for job in jobs}
    assert orders == {f"q{points - 1}", f"q{points}"}  # killed after the commit, and not at all


async def run_all(app: TasksApplication, *ids: str) -> list[object]:
    async with app, app.worker(concurrency=1):
        return [(await app.wait(id, "60s")).result for id in ids]


async def test_tasks_use_the_database_of_django() -> None:
    await Order.objects.acreate(name="Lima")
    results = [await task.aenqueue() for task in (tasks.count_orders, tasks.acount_orders)]
    assert await run_all(application("default"), *[result.id for result in results]) == [1, [1, 1]]


@needs_postgres
async def test_a_connection_that_was_cut_between_two_tasks_is_replaced() -> None:
    app = application("default")
    async with app, app.worker(concurrency=1):
        first = await tasks.backend_pid.aenqueue()
        pid = (await app.wait(first.id, "60s")).result

        def cut() -> None:
            with connection.cursor() as cursor:
                cursor.execute("select pg_terminate_backend(%s, 10000)", [pid])
                assert cursor.fetchone() == (True,)

        await sync_to_async(cut)()
        second = await tasks.backend_pid.aenqueue()
        ended = await app.wait(second.id, "60s")
    assert ended.error is None
    assert ended.result != pid


def test_a_job_is_announced_when_it_is_stored() -> None:
    announced: list[str] = []

    def receive(task_result: object, **_: object) -> None:
        announced.append("enqueued")

    task_enqueued.connect(receive)
    try:
        with transaction.atomic():
            tasks.add.using(backend="after").enqueue(1)
            assert announced == []
        assert announced == ["enqueued"]
    finally:
        task_enqueued.disconnect(receive)
