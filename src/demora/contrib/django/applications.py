"""The application of each task backend: one per alias and process, however many backends Django makes for its threads.

The attributes of this module are the applications, by alias, so that `--app` can name them.
"""

import dataclasses
import importlib
import re
import threading
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import autodiscover_modules, import_string

from ... import settings as settings_
from ...app import Demora
from ...handlers.registry import Handler, defaults
from .databases import database_url
from .running import handler_function, on_test_thread
from .tasks_api import AnyTask
from .transactions import AfterCommit

OPTIONS = frozenset(
    {"database", "database_url", "redis_url", "transaction", "max_retries", "retry_delay", "timeout", "imports"}
)
_OF_HANDLERS = ("max_retries", "retry_delay", "timeout")


class TasksApplication(Demora):
    """The jobs of one task backend. The type of a job is the module path of its task."""

    error_loggers = ("django.tasks", "django_tasks")  # where Django logs the tasks that have failed

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(name=f"django.{alias}")
        self.alias, self.options = alias, options
        self.tasks: dict[str, AnyTask] = {}
        self._handler_options: dict[str, Any] = {"max_retries": 0}
        self._handler_options |= {name: options[name] for name in _OF_HANDLERS if name in options}
        self._chosen = False
        self.waiting: list[AfterCommit] = []  # jobs of a test that wait for a commit

    @property
    def settings(self) -> settings_.Settings:
        """The settings. The database is chosen at the first access outside of a sandbox, since tests rename databases after
        the start."""
        if not self._chosen and self.sandbox is None:
            self._chosen = True
            self.configure(database_url=database_url(self.options), redis_url=self.options.get("redis_url"))
        return super().settings

    def register(self, task: AnyTask) -> None:
        """Register a task, so that workers can run its jobs. A task that is defined again replaces the first one."""
        self._add(task, {})

    def adopt(self, task: AnyTask, declared: "TasksApplication") -> None:
        """Register a task that is declared with another backend: callers may enqueue it here with `using`, and the jobs of
        several backends may be in one database. Its timeout is that of the backend it is declared with."""
        if task.module_path not in self.tasks:
            self._add(
                _for_backend(task, self.alias),
                {name: value for name, value in declared.options.items() if name == "timeout"},
            )

    def find_task(self, type: str) -> AnyTask | None:
        """Return the task of a type; None if no module that Django knows defines it. A stored name is never imported."""
        if type not in self.tasks:
            discover()
        return self.tasks.get(type)

    async def catch_up(self) -> None:
        """Store the jobs that a test has enqueued in transactions that have ended."""
        if self.waiting:
            await on_test_thread(self, self.store_waiting)

    def store_waiting(self) -> None:
        """Do so on the thread of the test."""
        self.waiting = [one for one in self.waiting if not one.store_in_test()]

    def _add(self, task: AnyTask, options: dict[str, Any]) -> None:
        type = task.module_path
        if type not in self.tasks:
            usual = defaults(type, **self._handler_options | options)
            self.registry.register(Handler(type, handler_function(self, task), usual))
        self.tasks[type] = task


_applications: dict[str, TasksApplication] = {}
_lock = threading.RLock()


def application(alias: str) -> TasksApplication:
    """Return the application of the task backend with this alias. Opens nothing."""
    with _lock:
        if alias not in _applications:
            _applications[alias] = TasksApplication(alias, settings.TASKS[alias].get("OPTIONS", {}))
        return _applications[alias]


def aliases() -> list[str]:
    """Return the aliases in TASKS whose backend is demora's, that of most tasks first."""
    from .backend import DemoraBackend

    given: Mapping[str, Any] = getattr(settings, "TASKS", {})
    ours = [alias for alias, values in given.items() if issubclass(import_string(values["BACKEND"]), DemoraBackend)]
    return sorted(ours, key=lambda alias: alias != "default")


def usual_alias() -> str:
    """Return the alias that is meant if none is named: `default`, or the only one of demora."""
    ours = aliases()
    if ours[:1] != ["default"] and len(ours) != 1:
        known = f"TASKS has {', '.join(ours)}" if ours else "no backend in TASKS is demora.contrib.django.DemoraBackend"
        raise ImproperlyConfigured(f"which task backend? {known}")
    return ours[0]


def discover() -> None:
    """Import the modules `tasks` of all installed applications and those that the option `imports` names, and register
    their tasks in the application of every alias."""
    found = [application(alias) for alias in aliases()]
    autodiscover_modules("tasks")
    for app in found:
        for name in app.options.get("imports", ()):
            importlib.import_module(name)
    declared = [(task, app) for app in found for task in app.tasks.values()]
    for app in found:
        for task, its in declared:
            app.adopt(task, its)


def _for_backend(task: AnyTask, alias: str) -> AnyTask:
    """Return a copy of a task for another backend, which need not allow its queue. Neither making a task nor `copy` will do:
    both have the backend check and register the task."""
    own: AnyTask = object.__new__(type(task))
    for field in dataclasses.fields(task):
        object.__setattr__(own, field.name, alias if field.name == "backend" else getattr(task, field.name))
    return own


def _forget(*, setting: str, **_: Any) -> None:
    """Drop the applications when a test changes the settings of tasks or databases."""
    if setting in ("TASKS", "DATABASES"):
        with _lock:
            for app in _applications.values():
                app.blocking.close()
            _applications.clear()


setting_changed.connect(_forget)


def attribute(alias: str) -> str:
    """Return the attribute of this module that is the application of an alias."""
    return re.sub(r"\W|^(?=[\d_])", "x_", alias)


def __getattr__(name: str) -> TasksApplication:
    for alias in [] if name.startswith("_") else aliases():
        if name == attribute(alias):
            discover()
            return application(alias)
    raise AttributeError(f"TASKS has no backend of demora named {name!r}")
