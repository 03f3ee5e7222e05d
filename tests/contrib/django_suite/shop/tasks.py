"""The tasks of the suite. They are found by autodiscovery."""

import threading
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from demora import Fail
from demora.contrib.django.tasks_api import TaskContext

from .models import Order
from .tasks_of_django import task

seen: list[Any] = []


class ShopError(Exception):
    class Closed(Exception):
        pass


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
async def aadd(a: int, b: int) -> int:
    return a + b


@task
def fail(kind: str = "own") -> None:
    errors = {"own": ShopError("no\nValueError: a trap"), "nested": ShopError.Closed(), "builtin": ValueError("no")}
    raise errors[kind]


@task
async def afail() -> None:
    raise ShopError("no")


@task
def give_up() -> None:
    raise Fail("useless")


@task(backend="retrying")
def fail_twice(how: str = "") -> str:
    seen.append(how)
    if len(seen) < 3:
        raise ShopError(f"try {len(seen)}")
    return "third"


@task(backend="retrying", takes_context=True)
def attempt(context: TaskContext) -> list[Any]:
    if context.attempt < 2:
        raise ShopError("first")
    return [context.attempt, len(context.task_result.errors), str(context.task_result.status)]


@task(takes_context=True)
async def acontext(context: TaskContext, a: int) -> list[Any]:
    return [context.attempt, context.task_result.args, a]


@task
def odd() -> Any:
    return {"a": (1, 2), "b": b"text"}


@task
def unserialisable() -> Any:
    return object()


@task
def count_orders() -> int:
    return Order.objects.count()


@task
async def acount_orders() -> list[Any]:
    """The connection of an async task lives in one thread for the whole task, and not in that of another task."""
    threads = [await sync_to_async(threading.get_ident)() for _ in range(2)]
    return [await Order.objects.acount(), len(set(threads))]


@task
def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task
def rename(order_id: int, name: str) -> int:
    """Write to the database, and say in which thread."""
    assert Order.objects.filter(pk=order_id).update(name=name) == 1
    return threading.get_ident()


@task
async def arename(order_id: int, name: str) -> int:
    assert await Order.objects.filter(pk=order_id).aupdate(name=name) == 1
    return await sync_to_async(threading.get_ident)()


@task
def rename_later(order_id: int, backend: str) -> None:
    with transaction.atomic():
        rename.using(backend=backend).enqueue(order_id, "later")


@task(backend="apart")
def apart() -> str:
    return "apart"
