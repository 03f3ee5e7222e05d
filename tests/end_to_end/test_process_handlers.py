"""Process handlers under real workers: who outlives whom, and where an application may be defined."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demora import Demora, Status
from tests.end_to_end.processes import World
from tests.facts import eventually

pytestmark = pytest.mark.slow

HANDLERS = ("--app", "tests.worker.process_jobs:app")
SCRIPT = """
import asyncio, os
from demora import Demora

app = Demora()

@app.job("parent", process=True, max_retries=0)
def parent() -> int:
    return os.getppid()

async def main():
    async with app, app.worker():
        job = await app.wait((await parent.enqueue()).id, "60s")
        print(job.result == os.getpid(), job.error)

"""


async def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def said(world: World, words: str) -> bool:
    return words in world.output.read_text()


async def signed(file: Path) -> int:
    return int(await eventually(lambda: asyncio.sleep(0, file.exists() and file.read_text())))


async def test_no_process_outlives_a_worker_that_is_killed(world: World, app: Demora, tmp_path: Path) -> None:
    worker = world.start_worker(*HANDLERS)
    idle = (await app.wait((await app.enqueue("pid")).id, "60s")).result["pid"]
    await app.enqueue("hangs", {"file": str(tmp_path / "hangs")})
    await signed(tmp_path / "hangs")
    kinds = ["starts"] if sys.platform != "linux" else ["starts", "hogs"]  # elsewhere a thread must see the pipe close
    for type in kinds:
        await app.enqueue(type, {"file": str(tmp_path / type)})
    pids = [idle] + [await signed(tmp_path / type) for type in ("hangs", *kinds)]
    world.kill(worker.pid)
    for pid in pids:
        await eventually(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


async def test_ctrl_c_gives_process_handlers_their_grace_and_their_records_are_logged(
    world: World, app: Demora, tmp_path: Path
) -> None:
    worker = world.start_worker(*HANDLERS)
    job = await app.enqueue("tells", {"file": str(tmp_path / "go")})
    await eventually(lambda: app.get(job.id), lambda job: job.progress)
    os.killpg(worker.pid, signal.SIGINT)
    await eventually(lambda: said(world, "is stopping: 1 running"))
    await asyncio.to_thread((tmp_path / "go").touch)
    assert await asyncio.to_thread(worker.wait, 60) == 0
    found = await app.get(job.id)
    assert (found.status, found.token, found.result) == (Status.COMPLETED, 1, "told")
    assert await said(world, f"WARNING [{job.id}] from the process\n")
    assert await said(world, f"ERROR   [{job.id}] with a traceback\nTraceback")


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ('if __name__ == "__main__":\n    asyncio.run(main())\n', "True None\n"),
        ("asyncio.run(main())\n", "False WrongProcess: "),
    ],
    ids=["guarded", "unguarded"],
)
def test_an_application_may_be_a_script_that_guards_its_start(tmp_path: Path, last: str, outcome: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + last)
    run = python("script.py", tmp_path)
    assert run.stdout.startswith(outcome), run.stderr


def test_an_application_typed_at_a_prompt_is_refused(tmp_path: Path) -> None:
    run = python("-", tmp_path, SCRIPT + "asyncio.run(main())\n")
    assert "BadHandler: handler for 'parent': its process imports the application" in run.stderr


def python(script: str, folder: Path, text: str = "") -> "subprocess.CompletedProcess[str]":
    pipes = {"input": text, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, script], cwd=folder, timeout=120, check=False, **pipes)  # type: ignore[call-overload,no-any-return]
