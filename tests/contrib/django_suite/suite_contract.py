"""What Django promises of its tasks, for Django's own backends and for ours."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from shop import tasks
from shop.models import Order
from shop.tasks_of_django import InvalidTask, TaskResultMismatch, task, task_backends

from demora import Priority
from demora.contrib.django.tasks_api import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from demora.testing import Sandbox

ALL, OURS = ("default", "dummy", "immediate"), "default"
Drain = Callable[..., None]
pytestmark = pytest.mark.usefixtures("sandboxes")


@pytest.fixture
def signals() -> Any:
    sent: list[tuple[str, str, int]] = []

    def record(name: str) -> Callable[..., None]:
        def receive(task_result: Any, **_: Any) -> None:
            sent.append((name, str(task_result.status), task_result.attempts))

        return receive

    named = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = {name: record(name) for name in named}
    for name, signal in named.items():
        signal.connect(receivers[name])
    yield sent
    for name, signal in named.items():
        signal.disconnect(receivers[name])


@pytest.mark.parametrize("alias", ALL)
def test_arguments_are_normalised_and_the_result_has_an_id(alias: str) -> None:
    result = tasks.add.using(backend=alias).enqueue(2, b=3)
    assert (result.args, result.kwargs, result.backend) == ([2], {"b": 3}, alias)
    assert 0 < len(result.id) <= 64
    assert result.enqueued_at <= timezone.now()


@pytest.mark.parametrize("alias", ALL)
def test_an_argument_that_is_no_json_is_refused(alias: str) -> None:
    with pytest.raises(TypeError):
        tasks.add.using(backend=alias).enqueue(object())


@pytest.mark.parametrize("alias", ALL)
def test_a_task_that_is_no_function_of_a_module_is_refused(alias: str) -> None:
    with pytest.raises(InvalidTask):
        task(backend=alias)(lambda: None)


@pytest.mark.parametrize("alias", ALL)
@pytest.mark.parametrize("changes", [{"priority": 101}, {"priority": -101}, {"priority": 0.5}])
def test_a_priority_out_of_range_is_refused(alias: str, changes: Any) -> None:
    with pytest.raises(InvalidTask):
        tasks.add.using(backend=alias, **changes)


def test_a_naive_time_and_a_bad_queue_are_refused() -> None:
    for changes in ({"run_after": datetime.datetime(2030, 1, 1)}, {"queue_name": "a b"}):
        with pytest.raises(InvalidTask):
            tasks.add.using(**changes)
    with pytest.raises(InvalidTask):
        tasks.fail_twice.using(queue_name="unknown")


@pytest.mark.parametrize("alias", [OURS, "immediate"])
@pytest.mark.parametrize("name", ["add", "aadd"])
def test_a_task_runs_and_its_value_is_in_the_result(alias: str, name: str, drain: Drain) -> None:
    result = getattr(tasks, name).using(backend=alias).enqueue(2, 3)
    drain()
    if alias == OURS:
        assert result.status == TaskResultStatus.READY
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
        result.refresh()
    assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, 5, [])
    assert (result.attempts, len(result.worker_ids), result.is_finished) == (1, 1, True)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at


@pytest.mark.parametrize("alias", [OURS, "immediate"])
@pytest.mark.parametrize(
    ("name", "args", "path"),
    [
        ("fail", [], "shop.tasks.ShopError"),
        ("fail", ["nested"], "shop.tasks.ShopError.Closed"),
        ("fail", ["builtin"], "builtins.ValueError"),
        ("afail", [], "shop.tasks.ShopError"),
        ("give_up", [], "demora.handlers.control.Fail"),
        ("unserialisable", [], "builtins.TypeError"),
    ],
)
def test_a_task_that_fails_has_one_error_and_no_retry(alias: str, name: str, args: Any, path: str, drain: Drain) -> None:
    result = getattr(tasks, name).using(backend=alias).enqueue(*args)
    drain("1h")
    if alias == OURS:
        result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    [error] = result.errors
    assert error.exception_class_path == path
    assert path.rpartition(".")[2] in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


@pytest.mark.parametrize("alias", [OURS, "immediate"])
def test_values_are_normalised(alias: str, drain: Drain) -> None:
    result = tasks.odd.using(backend=alias).enqueue()
    drain()
    if alias == OURS:
        result.refresh()
    assert result.return_value == {"a": [1, 2], "b": "text"}


def test_retries_are_attempts_of_the_same_result(drain: Drain) -> None:
    result = tasks.fail_twice.enqueue()
    drain("1h")
    result.refresh()
    assert (result.return_value, result.attempts) == ("third", 3)
    assert [error.exception_class for error in result.errors] == [tasks.ShopError] * 2
    assert "try 2" in result.errors[1].traceback


def test_a_task_sees_its_attempt(drain: Drain) -> None:
    result = tasks.attempt.enqueue()
    drain("1h")
    result.refresh()
    assert result.return_value == [2, 1, "RUNNING"]


@pytest.mark.parametrize("alias", [OURS, "immediate"])
def test_an_async_task_takes_the_context(alias: str, drain: Drain) -> None:
    result = tasks.acontext.using(backend=alias).enqueue(7)
    drain()
    if alias == OURS:
        result.refresh()
    assert result.return_value == [1, [7], 7]


@pytest.mark.parametrize("alias", [OURS, "immediate"])
def test_signals_are_sent_in_order(alias: str, drain: Drain, signals: list[Any]) -> None:
    tasks.add.using(backend=alias).enqueue(1)
    drain()
    assert signals == [("enqueued", "READY", 0), ("started", "RUNNING", 1), ("finished", "SUCCESSFUL", 1)]


@pytest.mark.parametrize("name", ["fail", "afail"])
@pytest.mark.parametrize("alias", [OURS, "immediate"])
def test_a_failure_is_signalled(alias: str, name: str, drain: Drain, signals: list[Any]) -> None:
    getattr(tasks, name).using(backend=alias).enqueue()
    drain()
    assert signals == [("enqueued", "READY", 0), ("started", "RUNNING", 1), ("finished", "FAILED", 1)]


def test_the_end_is_signalled_once_after_the_last_attempt(drain: Drain, signals: list[Any]) -> None:
    tasks.fail_twice.enqueue()
    drain("1h")
    assert [name for name, *_ in signals] == ["enqueued", "started", "started", "started", "finished"]


def test_a_receiver_that_fails_does_not_fail_the_task(drain: Drain) -> None:
    def receive(**_: Any) -> None:
        raise RuntimeError

    task_finished.connect(receive)
    try:
        result = tasks.add.enqueue(1)
        drain()
    finally:
        task_finished.disconnect(receive)
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


@pytest.mark.parametrize(
    ("number", "priority"),
    [(-100, "LOW"), (-1, "LOW"), (0, "NORMAL"), (1, "HIGH"), (49, "HIGH"), (50, "CRITICAL"), (100, "CRITICAL")],
)
def test_a_priority_is_returned_as_it_was_given(sandboxes: dict[str, Sandbox], number: int, priority: str) -> None:
    result = tasks.add.using(priority=number, queue_name="mail").enqueue(1)
    [job] = sandboxes["default"].blocking.enqueued()
    assert (job.priority, job.queue, job.type) == (Priority[priority], "mail", "shop.tasks.add")
    found = tasks.add.get_result(result.id).task
    assert (found.priority, found.queue_name, found.run_after) == (number, "mail", None)


def test_a_task_runs_after_its_time(drain: Drain) -> None:
    at = timezone.now().replace(microsecond=0) + datetime.timedelta(hours=1)
    result = tasks.add.using(run_after=at).enqueue(1)
    drain("30m")
    result.refresh()
    assert (result.status, tasks.add.get_result(result.id).task.run_after) == (TaskResultStatus.READY, at)
    drain("31m")
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


@pytest.mark.parametrize("alias", ["default", "dummy"])
def test_a_result_that_does_not_exist_is_said_so(alias: str) -> None:
    for id in ("nonsense", "01a1e7cc-5210-748a-a852-48dba720f661"):
        with pytest.raises(TaskResultDoesNotExist):
            task_backends[alias].get_result(id)


def test_a_job_that_is_no_task_has_no_result(sandboxes: dict[str, Sandbox]) -> None:
    job = sandboxes["default"].app.blocking.enqueue("demo.echo")
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(job.id)


def test_the_result_of_another_task_is_refused() -> None:
    result = tasks.add.enqueue(1)
    with pytest.raises(TaskResultMismatch):
        tasks.odd.get_result(result.id)


def test_a_cancelled_job_is_a_failed_task(sandboxes: dict[str, Sandbox]) -> None:
    result = tasks.add.enqueue(1)
    sandboxes["default"].app.blocking.cancel(result.id)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED


def test_a_model_as_an_argument_is_refused_with_the_way() -> None:
    order = Order.objects.create(name="Lima")
    with pytest.raises(TypeError, match=r"args\[0\] is a Order, .* pass its primary key"):
        tasks.add.enqueue(order)
    with pytest.raises(TypeError, match=r"kwargs\['b'\] is a Order"):
        tasks.add.enqueue(1, b=order)


async def test_results_can_be_awaited() -> None:
    result = await tasks.aadd.aenqueue(2, 3)
    found = await tasks.aadd.aget_result(result.id)
    await found.arefresh()
    assert (found.status, found.args) == (TaskResultStatus.READY, [2, 3])
