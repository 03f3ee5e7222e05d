"""What `demora serve` says once it is up: where it is, where the jobs are, and three things to try."""

import json
import os
import shlex
import shutil
import sys

from .. import __version__
from ..builtin import unwanted
from ..core.dsn import without_secrets
from ..settings import Settings, load

_TRY = {"type": "demo.echo", "payload": {"hi": 1}, "delay": 3000}


def banner(address: str, settings: Settings, *, in_memory: bool, with_key: bool = False) -> str:
    database_url, redis_url = settings.database_url, settings.redis_url
    line = "" if redis_url is None else f", lined up in {without_secrets(redis_url)}"
    body = json.dumps(_TRY, separators=(",", ":"))
    names = settings.builtin_handlers or (("http.request",) if with_key else ("all",))
    echoes = _TRY["type"] not in unwanted(names)
    key = ' -H "authorization: Bearer $KEY"' if with_key else ""
    return "\n".join(
        [
            f"demora {__version__} at {address}, jobs in {without_secrets(database_url)}{line}",
            "",
            "Try, with KEY=dmr_… (demora keys create makes one):" if with_key else "Try:",
            *([f"  curl -s {address}/api/v1/jobs{key} -H 'content-type: application/json' -d '{body}'"] if echoes else []),
            f"  curl -s {address}/api/v1/jobs{key}" if in_memory or not echoes else f"  {_looking(database_url)}",
            f"  {address}/api/v1/openapi.json",
            "",
        ]
    )


def _looking(database_url: str) -> str:
    """The command that lists the jobs, as it must be typed in this folder."""
    same = load().database_url == database_url
    return f"{_command()} jobs" if same else f"{_command()} --database-url {shlex.quote(without_secrets(database_url))} jobs"


def _command() -> str:
    script = sys.argv[0]
    if shutil.which("demora") or os.path.basename(script) != "demora":
        return "demora"
    return os.path.relpath(script)
