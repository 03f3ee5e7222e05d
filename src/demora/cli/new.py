"""`demora new`: creates a small project with a job, a test, and the files to deploy it."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from string import Template
from typing import NamedTuple

import click

from .root import Failure, verb

_WHEEL = """
`requirements.txt` names the place that demora was installed from, which an image does not have. Before you build one, put
a wheel into this folder with `pip wheel --no-deps -w . {source}`, and name its file there.
"""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


class _Framework(NamedTuple):
    """How a project is started and tested. One without a framework has no web server."""

    web: str | None
    worker: str
    test: str = "pytest"
    tools: str = "pytest httpx"
    call: str = "curl http://127.0.0.1:8000/mails -d to=a@b.c"


FRAMEWORKS = {
    "none": _Framework(None, "demora worker --app jobs:app"),
    "fastapi": _Framework(
        "uvicorn web:web --host 127.0.0.1 --port 8000",
        "demora worker --app web:jobs",
        call="""curl http://127.0.0.1:8000/mails -H 'content-type: application/json' -d '{"to": "a@b.c"}'""",
    ),
    "django": _Framework(
        "gunicorn config.wsgi --bind 127.0.0.1:8000", "python manage.py demora worker", "python manage.py test", tools=""
    ),
    "flask": _Framework("gunicorn 'web:create_app()' --bind 127.0.0.1:8000", "flask --app web demora worker"),
}


@verb("new")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--framework",
    type=click.Choice(list(FRAMEWORKS)),
    default="none",
    show_default=True,
    help="The web framework of the project.",
)
def new(folder: Path, framework: str) -> None:
    """Create a small project in a new or empty folder.

    It has a job, a test, a Dockerfile, a compose file and systemd units.
    """
    name = folder.absolute().name
    if not _NAME.fullmatch(name):
        raise Failure(f"{name!r} cannot name a project: use lowercase letters, digits and dashes, and begin with a letter")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Failure(f"{folder} exists and is not an empty folder")
    for path, text in _texts(framework, name):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    click.echo(f"created {folder}; its README.md says how to start it")


def _texts(framework: str, name: str) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the path and the text of each file. Those of the framework take the place of the common ones."""
    chosen = FRAMEWORKS[framework]
    root = files(__package__) / "projects"
    found = dict(_files(root / "common", PurePosixPath())) | dict(_files(root / framework, PurePosixPath()))
    source = _source()
    words = {
        "name": name,
        "worker": chosen.worker,
        "test": chosen.test,
        "tools": chosen.tools,
        "web": chosen.web or "",
        "web_in_a_container": (chosen.web or "").replace("127.0.0.1", "0.0.0.0"),
        "call": chosen.call,
        "source": f" @ {source}" if source else "",
        "wheel": _WHEEL.format(source=source) if source else "",
    }
    for path, text in found.items():
        if chosen.web is not None or path.stem != "web":
            yield path, Template(text).safe_substitute(words)


def _source() -> str | None:
    """The URL that demora was installed from, None if it was a package index. A project installs it from there too."""
    recorded = distribution("demora").read_text("direct_url.json")
    return None if recorded is None else str(json.loads(recorded)["url"])


def _files(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the files below a folder of templates, whose names end with .txt."""
    for one in folder.iterdir():
        if one.is_dir():
            yield from _files(one, path / one.name)
        elif one.name.endswith(".txt"):
            name = one.name.removesuffix(".txt")
            yield path / (".gitignore" if name == "gitignore" else name), one.read_text()
