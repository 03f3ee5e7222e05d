"""How a rival is run: as its own documentation says, on the same disk or server, in the same run, in its own processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def asked(module: str, variable: str, place: str, *words: str) -> Any:
    """What a module of this package prints, told by a variable where to keep its jobs."""
    run = [sys.executable, "-m", f"bench.{module}", *words]
    ended = subprocess.run(run, env=os.environ | {variable: place}, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{module} failed: " + ended.stderr.strip().rpartition("\n")[2])
    return json.loads(ended.stdout)


@contextmanager
def worker(module: str, *words: str) -> Iterator[None]:
    """A rival's own worker, at work."""
    process = subprocess.Popen([sys.executable, "-m", module, *words], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
