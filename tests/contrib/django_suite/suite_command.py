"""`manage.py demora`: every command, the options of Django, and the task backend that it is about."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings
from shop import tasks

from demora.contrib.django.applications import application
from demora.contrib.django.management.commands.demora import Command, _take_off

OURS = {"BACKEND": "demora.contrib.django.DemoraBackend"}


def environment() -> dict[str, str]:
    """The environment of a terminal in which no settings are chosen."""
    return {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}


def manage(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "django", "demora", *words]
    folder = Path(__file__).parent
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=100)


def test_every_command_of_demora_is_one_of_manage(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("demora", "migrate")
    call_command("demora", "queues", "--json")
    assert "[" in capsys.readouterr().out


def test_the_options_of_django_may_stand_before_and_after_the_verb() -> None:
    call_command("demora", "migrate")
    for words in (
        ("--settings=shop.settings", "--pythonpath=.", "queues", "--json"),
        ("queues", "--no-color", "--json", "-v", "2", "--settings", "shop.settings", "--force-color"),
    ):
        run = manage(*words)
        assert (run.returncode, run.stdout[:1]) == (0, "{"), run.stderr


def test_an_error_is_one_line_and_with_traceback_all_of_it() -> None:
    call_command("demora", "migrate")
    run = manage("job", "ffff", "--settings=shop.settings")
    assert run.returncode == 1
    assert run.stderr.startswith("error: "), run.stderr
    assert "Traceback" in manage("job", "ffff", "--settings=shop.settings", "--traceback").stderr


def test_each_option_that_the_help_lists_is_taken_off() -> None:
    parser = Command().create_parser("manage.py", "demora")
    listed = {name: action for action in parser._actions for name in action.option_strings}
    for name in ("-h", "--help", "--version"):  # those are demora's own
        del listed[name]
    for name, action in listed.items():
        value = [] if action.nargs == 0 else ["2"]
        assert _take_off(["jobs", name, *value, "--limit", "3"])[1] == ["jobs", "--limit", "3"], name
    assert _take_off(["enqueue", "--", "-v", "x"])[1] == ["enqueue", "--", "-v", "x"]


def test_the_backend_is_the_default_one_or_the_only_one_or_named() -> None:
    with override_settings(TASKS={"mine": OURS}):
        call_command("demora", "migrate")
    with override_settings(TASKS={"one": OURS, "two-x": OURS}):
        with pytest.raises(CommandError, match=r"which task backend\? TASKS has one, two-x; name one with --backend"):
            call_command("demora", "migrate")
        call_command("demora", "migrate", backend="two-x")
    with pytest.raises(CommandError, match="no backend of demora named 'immediate'"):
        call_command("demora", "migrate", backend="immediate")


ALL_TASKS = """
    import django
    django.setup()
    from demora.contrib.django import applications
    found = [getattr(applications, alias) for alias in applications.aliases()]
    assert len(found) > 3
    assert {app.alias: sorted(app.tasks) for app in found} == {app.alias: sorted(found[0].tasks) for app in found}
    for app in found:
        assert {"shop.tasks.add", "shop.tasks.fail_twice", "shop.tasks.apart"} <= app.tasks.keys() & app.registry.known
        assert {task.backend for task in app.tasks.values()} == {app.alias}
        assert app.registry.get("shop.tasks.apart").defaults.timeout.total_seconds() == 420
        assert app.registry.get("shop.tasks.fail_twice").defaults.max_retries == (2 if app.alias == "retrying" else 0)
"""


def test_the_application_of_each_backend_has_the_tasks_of_all() -> None:
    command = [sys.executable, "-c", textwrap.dedent(ALL_TASKS)]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr


def test_a_worker_of_a_backend_runs_its_tasks_and_those_that_were_sent_to_it() -> None:
    results = [tasks.apart.enqueue(), tasks.add.using(backend="apart").enqueue(2, 3)]
    command = [sys.executable, "-m", "django", "demora", "--settings=shop.settings", "worker", "--backend", "apart"]
    with subprocess.Popen(command, cwd=Path(__file__).parent, env=environment()) as worker:
        try:
            app = application("apart")
            assert [app.blocking.wait(result.id, "60s").result for result in results] == ["apart", 5]
        finally:
            worker.terminate()
    assert worker.returncode == 0
    results[1].refresh()
    assert (results[1].return_value, results[1].backend) == (5, "apart")
    assert tasks.add.using(backend="apart").get_result(results[1].id).backend == "apart"
