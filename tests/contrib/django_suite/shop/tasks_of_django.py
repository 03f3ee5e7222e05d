"""The decorator and the handler of task backends, of Django or of the package."""

import importlib.util

if importlib.util.find_spec("django.tasks"):
    from django.tasks import task, task_backends
    from django.tasks.exceptions import InvalidTask, TaskResultMismatch

    PACKAGE = "django.tasks"
else:
    from django_tasks import task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultMismatch

    PACKAGE = "django_tasks"

__all__ = ["PACKAGE", "InvalidTask", "TaskResultMismatch", "task", "task_backends"]
