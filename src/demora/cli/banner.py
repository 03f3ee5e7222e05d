"""What `demora serve` says once it is up: where it is, where the jobs are, and three things to try."""

import json
import os
import shlex
import shutil
import sys
from urllib.parse import urlsplit

from .. import __version__
from ..settings import load

_TRY = {"type": "demo.echo", "payload": {"hi": 1}, "delay": 3000}


def banner(address: str, database_url: str, *, in_memory: bool, with_key: bool = False) -> str:
    body = json.dumps(_TRY, separators=(",", ":"))
    key = ' -H "authorization: Bearer $KEY"' if with_key else ""
    return "\n".join(
        [
            f"demora {__version__} at {address}, jobs in {without_password(database_url)}",
            "",
            "Try, with KEY=dmr_… (demora keys create makes one):" if with_key else "Try:",
            f"  curl -s {address}/api/v1/jobs{key} -H 'content-type: application/json' -d '{body}'",
            f"  curl -s {address}/api/v1/jobs{key}" if in_memory else f"  {_looking(database_url)}",
            f"  {address}/api/v1/openapi.json",
            "",
        ]
    )


def without_password(url: str) -> str:
    password = urlsplit(url).password
    return url if password is None else url.replace(f":{password}@", ":…@", 1)


def _looking(database_url: str) -> str:
    """The command that lists the jobs, as it must be typed in this folder."""
    same = load().database_url == database_url
    return (
        f"{_command()} jobs" if same else f"{_command()} --database-url {shlex.quote(without_password(database_url))} jobs"
    )


def _command() -> str:
    script = sys.argv[0]
    if shutil.which("demora") or os.path.basename(script) != "demora":
        return "demora"
    return os.path.relpath(script)
