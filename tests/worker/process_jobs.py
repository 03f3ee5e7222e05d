"""Process handlers, at the top of a module that their processes import."""

import asyncio
import ctypes
import logging
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from demora import Cancel, Context, Demora, Fail, Retry, Snooze, current_run

time.sleep(float(os.environ.get("SLOW_IMPORT", "0")))

app = Demora()
QUICK = {"max_retries": 1, "retry_delay": "1ms"}


class Odd(Exception):
    pass


class Unjudged(Snooze):
    """A signal that says nothing that could be stored."""

    def __init__(self) -> None:
        self.delay = "soon"  # type: ignore[assignment]


def sign(file: str, pid: int | None = None) -> None:
    """Say which process is there, in one step."""
    new = Path(f"{file}.new")
    new.write_text(str(pid or os.getpid()))
    new.rename(file)


@app.job("pid", process=True)
def pid() -> dict[str, int]:
    return {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp()}


@app.job("pid.async", process=True)
async def pid_async(ctx: Context) -> list[Any]:
    await asyncio.sleep(0)
    assert current_run() is ctx
    return [os.getpid(), ctx.attempt, ctx.job.name, ctx.worker_id]


@app.job("exits", process=True, **QUICK)
def exits(code: int) -> None:
    os._exit(code)


@app.job("crashes", process=True, **QUICK)
def crashes() -> None:
    ctypes.string_at(0)


@app.job("killed", process=True, **QUICK)
def killed() -> None:
    os.kill(os.getpid(), 9)


@app.job("greedy", process=True, memory="1GB", **QUICK)
def greedy(megabytes: int) -> int:
    return len(bytearray(megabytes * 1024**2))


@app.job("limit", process=True)
def limit() -> int:
    """How much memory this process may have; -1 if all there is."""
    return resource.getrlimit(resource.RLIMIT_AS)[0]


@app.job("closes", process=True, **QUICK)
def closes() -> None:
    os.closerange(3, 4096)


@app.job("garbles", process=True, **QUICK)
def garbles() -> None:
    for fd in range(3, 4096):
        try:
            os.write(fd, b"\0\0\0\4" + b"nope" * 10_000)
        except OSError:
            continue
    print("garbage", flush=True)


@app.job("floods", process=True)
def floods(ctx: Context, times: int) -> int:
    for n in range(times):
        ctx.progress(n / times)
        ctx.log("flood")
        logging.getLogger("flood").info("line %d", n)
    return times


@app.job("hangs", process=True, **QUICK)
def hangs(file: str) -> None:
    sign(file)
    while True:
        time.sleep(60)


@app.job("hogs", process=True, max_retries=0)
def hogs(file: str) -> None:
    """Holds the interpreter, so that no thread of this process can run."""
    sign(file)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.job("waits", process=True)
async def waits(file: str, says: str) -> str:
    sign(file)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if says == "success":
            return "done all the same"
        raise
    return "never"


@app.job("looks", process=True)
def looks(ctx: Context, file: str) -> None:
    sign(file)
    while not ctx.cancel_requested:
        time.sleep(0.01)
    raise Cancel("as you asked")


@app.job("asks", process=True)
def asks(ctx: Context, file: str) -> None:
    sign(file)
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.01)


@app.job("tells", process=True)
def tells(ctx: Context, file: str) -> str:
    ctx.progress(0.5, "half")
    ctx.log("first line")
    logging.getLogger("shop").warning("from the process")
    try:
        raise Odd("caught")
    except Odd:
        logging.getLogger("shop").exception("with a traceback")
    while not Path(file).exists():
        time.sleep(0.01)
    ctx.log("last line")
    return "told"


@app.job("raises", process=True, permanent=(LookupError,), **QUICK)
def raises(what: str) -> None:
    match what:
        case "retry":
            raise Retry("later", after="1ms")
        case "snooze":
            if current_run().job.lease.token < 3:  # type: ignore[union-attr]
                raise Snooze("1ms")
        case "cancel":
            raise Cancel("not needed")
        case "fail":
            raise Fail("useless")
        case "detail":
            raise Fail("useless", detail={"a": 1})
        case "unjudged":
            raise Unjudged
        case "permanent":
            raise KeyError("gone")
        case "exit":
            sys.exit(3)
        case _:
            raise Odd("odd \ud800 \0 text")


@app.job("raises.async", process=True, max_retries=0)
async def raises_async() -> None:
    raise Odd("async")


@app.job("cancels.itself", process=True)
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@app.job("logs", process=True)
def logs() -> None:
    """Writes records that are hard to send, and one that cannot be written."""
    log = logging.getLogger("shop")
    log.info("odd %s text", "\ud800")
    log.info("x" * 1_000_000)
    try:
        raise Odd("caught")
    except Odd:
        log.exception("with a traceback")
    log.info("too many arguments", "for this")
    foretold = log.makeRecord("shop", logging.INFO, __file__, 1, "with its traceback", (), None)
    foretold.exc_text = "a traceback as text"
    log.handle(foretold)


@app.job("odd.result", process=True, **QUICK)
def odd_result() -> Any:
    return {"when": object()}


def late() -> None:
    """Register a handler that no import registers."""

    @app.job("late", process=True, max_retries=0)
    def handler() -> None:
        pass


@app.job("forks", process=True)
def forks() -> list[int]:
    """A pool of forks that is terminated, a program that is, and a fork that comes back from the handler."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        squares = pool.map(_square, [1, 2, 3])
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    program.terminate()
    if os.fork() == 0:
        return []
    return [*squares, program.wait()]


@app.job("fork.warns", process=True)
def fork_warns() -> int:
    """A fork writes a record, and is told to stop; answers with how it ended."""
    ours, theirs = os.pipe()
    if (fork := os.fork()) == 0:
        logging.getLogger("shop").warning("from a fork")
        os.write(theirs, b".")
        time.sleep(600)
    os.read(ours, 1)
    os.kill(fork, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])


@app.job("forks.killed", process=True)
def forks_killed() -> list[int]:
    """Forks that are told to stop before they have begun; answers with how they ended."""
    ends = []
    for _ in range(20):
        if (fork := os.fork()) == 0:
            time.sleep(600)
        os.kill(fork, signal.SIGTERM)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))
    return ends


def _square(number: int) -> int:
    logging.getLogger("shop").info("square")
    return number * number


@app.job("starts", process=True)
def starts(file: str) -> None:
    """Starts a program, and hangs."""
    program = subprocess.Popen(["sleep", "600"])
    sign(file, program.pid)
    program.wait()


@app.job("enqueues", process=True)
async def enqueues() -> str:
    return (await app.enqueue("demo.echo", {"from": "a process"})).id
