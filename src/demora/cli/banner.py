"""What `demora serve` says once it is up: where it is, where the jobs are, and three things to try."""

import json
import os
import re
import shlex
import shutil
import sys

from .. import __version__
from ..settings import Settings, load

_PASSWORD = re.compile(r"(://[^:/?#@]*):.*@")
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)[^&]*", re.IGNORECASE)
_TRY = {"type": "demo.echo", "payload": {"hi": 1}, "delay": 3000}


def banner(address: str, settings: Settings, *, in_memory: bool, with_key: bool = False) -> str:
    database_url, redis_url = settings.database_url, settings.redis_url
    line = "" if redis_url is None else f", lined up in {without_password(redis_url)}"
    body = json.dumps(_TRY, separators=(",", ":"))
    key = ' -H "authorization: Bearer $KEY"' if with_key else ""
    return "\n".join(
        [
            f"demora {__version__} at {address}, jobs in {without_password(database_url)}{line}",
            "",
            "Try, with KEY=dmr_… (demora keys create makes one):" if with_key else "Try:",
            f"  curl -s {address}/api/v1/jobs{key} -H 'content-type: application/json' -d '{body}'",
            f"  curl -s {address}/api/v1/jobs{key}" if in_memory else f"  {_looking(database_url)}",
            f"  {address}/api/v1/openapi.json",
            "",
        ]
    )


def without_password(url: str) -> str:
    """The URL as it may be shown: rather too little of it than a part of a password that has signs which mean something."""
    return _PARAMETER.sub(r"\1…", _PASSWORD.sub(r"\1:…@", url))


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
