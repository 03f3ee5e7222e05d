"""`manage.py demora …`: every command of demora, for the jobs of Django's tasks."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from ....cli_program import run_root
from ... import applications


class Command(BaseCommand):
    help = "Runs a command of demora for the jobs of Django's tasks: manage.py demora worker --reload"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Give all words to demora but the options of Django and `--backend`, which may stand anywhere."""
        taken, words = _take_off(argv[2:])
        try:
            app = _application(taken.backend)
        except CommandError as problem:
            self.stderr.write(f"error: {problem}")
            raise SystemExit(1) from problem
        if taken.no_color or taken.force_color:
            os.environ["NO_COLOR" if taken.no_color else "FORCE_COLOR"] = "1"
        run_root([app], words, name=f"{argv[0]} {argv[1]}", typed=len(argv) - 2, kept=_kept(taken), raises=taken.traceback)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--backend", help="The alias of the task backend in TASKS, if there are several.")
        parser.add_argument("words", nargs=argparse.REMAINDER, help="A command of demora and its options.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it from code: call_command("demora", "stats")."""
        run_root([_application(options["backend"])], options["words"], name="demora", standalone=False)


def _take_off(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options that are not for demora, wherever they stand, and the other words. Django has applied its own."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--backend", "--settings", "--pythonpath"):
        parser.add_argument(name)
    for name in ("--traceback", "--no-color", "--force-color"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("-v", "--verbosity")
    end = words.index("--") if "--" in words else len(words)
    taken, left = parser.parse_known_args(words[:end])
    return taken, [*left, *words[end:]]


def _kept(taken: argparse.Namespace) -> list[str]:
    """Return the options that the processes of a command need too."""
    return [f"--{name}={value}" for name in ("backend", "settings", "pythonpath") if (value := getattr(taken, name))]


def _application(alias: str | None) -> str:
    """Return the option of demora that names the application of a task backend."""
    try:
        chosen = applications.usual_alias() if alias is None else alias
    except ImproperlyConfigured as problem:
        raise CommandError(f"{problem}; name one with --backend") from problem
    if chosen not in applications.aliases():
        raise CommandError(f"TASKS has no backend of demora named {chosen!r}; it has {', '.join(applications.aliases())}")
    return f"--app={applications.__name__}:{applications.attribute(chosen)}"
