"""Programs of the examples, started as their pages say."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

EXAMPLES = Path(__file__).parents[2] / "examples"
STARTS = 60  # seconds
LOOK = 0.01  # seconds between two looks: what is awaited needs the core too


@contextmanager
def running(folder: Path, *command: str, output: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m …` in a folder for the duration of the block."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DEMORA_")}
    with output.open("ab") as written:
        program = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            env=inherited | environment,
            stdout=written,
            stderr=written,
            process_group=0,
        )
    try:
        yield program
    finally:
        program.terminate()
        try:
            program.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, 9)
            program.wait(30)


@contextmanager
def calling(port: int, program: subprocess.Popen[bytes], output: Path) -> Iterator[httpx.Client]:
    """Yield a caller of the web server on this port once it listens."""
    until = time.monotonic() + STARTS
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=STARTS) as http:
        while True:
            try:
                http.get("/")
                break
            except httpx.TransportError:
                assert program.poll() is None, output.read_text()
                assert time.monotonic() < until, output.read_text()
                time.sleep(LOOK)
        yield http
