"""Tasks in tests that never commit: Django's `TestCase`, whose tests run inside transactions that are rolled back."""

import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from shop import tasks
from shop.models import Order
from shop.tasks_of_django import task_backends

from demora.contrib.django.applications import application
from demora.contrib.django.tasks_api import TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from demora.testing import Drained, Sandbox


def place_order(backend: str = "default", *, then_fail: bool = False) -> str:
    """Enqueue a task in a transaction, as a view does."""
    with transaction.atomic():
        order = Order.objects.create(name="Lima")
        result = tasks.rename.using(backend=backend).enqueue(order.pk, "Cusco")
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
        if then_fail:
            raise ZeroDivisionError
    return str(result.id)


def place_order_and_fail(backend: str) -> None:
    place_order(backend)
    raise ZeroDivisionError


def names() -> list[str]:
    return sorted(Order.objects.values_list("name", flat=True))


class Cases:
    """The same tests for both classes of Django."""

    backend = "default"

    @pytest.fixture(autouse=True)
    def in_sandbox(self) -> object:
        with Sandbox(application(self.backend)) as self.sandbox:
            yield

    def drain(self) -> Drained:
        return self.sandbox.blocking.drain()

    def test_a_task_sees_what_the_test_has_written_and_the_test_what_the_task_has(self) -> None:
        order = Order.objects.create(name="Lima")
        for task in (tasks.rename, tasks.arename):
            result = task.using(backend=self.backend).enqueue(order.pk, str(task.name))
            assert [job.error for job in self.drain().jobs] == [None]
            assert names() == [task.name]
            result.refresh()
            assert result.return_value == threading.get_ident()

    def test_a_job_exists_once_the_transactions_of_the_tested_code_have_ended(self) -> None:
        with transaction.atomic():
            id = place_order(self.backend)
            assert self.sandbox.blocking.enqueued() == []
            assert self.drain().jobs == []
        result = task_backends[self.backend].get_result(id)
        assert result.status == TaskResultStatus.READY
        assert [job.id for job in self.sandbox.blocking.enqueued()] == [id]
        assert not self.drain().failures
        assert names() == ["Cusco"]

    def test_a_job_of_a_transaction_that_was_rolled_back_does_not_exist(self) -> None:
        with pytest.raises(ZeroDivisionError):
            place_order(self.backend, then_fail=True)
        place_order(self.backend)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            place_order_and_fail(self.backend)
        assert len(self.drain().ended) == 1
        assert names() == ["Cusco"]

    def test_a_task_that_enqueues_in_a_transaction_is_followed_by_the_next(self) -> None:
        order = Order.objects.create(name="Lima")
        tasks.rename_later.using(backend=self.backend).enqueue(order.pk, self.backend)
        assert len(self.drain().ended) == 2
        assert names() == ["later"]

    async def test_an_async_test_shares_its_connection_too(self) -> None:
        order = await Order.objects.acreate(name="Lima")
        for task in (tasks.rename, tasks.arename):
            await task.using(backend=self.backend).aenqueue(order.pk, str(task.name))
            assert [job.error for job in (await self.sandbox.drain()).jobs] == [None]
            assert await sync_to_async(names)() == [task.name]
        await sync_to_async(place_order)(self.backend)
        assert len((await self.sandbox.drain()).ended) == 1


class TestInTestCase(Cases, TestCase):
    def test_callbacks_that_django_captures_store_a_job_once(self) -> None:
        announced: list[str] = []

        def receive(task_result: Any, **_: Any) -> None:
            announced.append(task_result.id)

        task_enqueued.connect(receive)
        try:
            with self.captureOnCommitCallbacks(execute=True) as callbacks:
                first = place_order(self.backend)
            assert len(callbacks) == 1
            assert len(self.drain().ended) == 1
            with self.captureOnCommitCallbacks(execute=True):
                second = place_order(self.backend)
                assert len(self.drain().ended) == 1
            assert self.drain().jobs == []
            assert announced == [first, second]
        finally:
            task_enqueued.disconnect(receive)


class TestInTestCaseAfterCommit(TestInTestCase):
    backend = "after"


@pytest.mark.skipif("joined" not in settings.TASKS, reason="Django is not on PostgreSQL")
class TestInTestCaseJoined(TestInTestCase):
    backend = "joined"


class TestInTransactionTestCase(Cases, TransactionTestCase):
    def _fixture_teardown(self) -> None:
        Order.objects.all().delete()  # the suite has no test database, whose tables could be flushed
