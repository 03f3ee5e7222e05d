"""The blocking face: from threads, scripts and handlers, around forks, signals and the end of a process."""

import asyncio
import inspect
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import demora
from demora import Demora, Status
from demora.blocking import Blocking
from demora.client.client import Client
from demora.client.queues import Queues
from demora.engines.sqlite import SqliteStore
from demora.errors import Invalid, OneLoopOnly, StillRunning, StoreClosed, WouldBlock
from demora.handlers.registry import Registry
from tests.facts import eventually
from tests.worker.conftest import ended

Names = Callable[[], list[str]]
NOT_FOR_APPLICATIONS = {"add", "apply_paces", "define_schedules", "compare_line", "rebuild_line", "evidence", "end_audit"}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Demora]:
    app = Demora(f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.blocking.close()


@pytest.fixture
def our_threads() -> Names:
    """The names of demora's threads that were started since; other tests may have left some."""
    before = set(threading.enumerate())
    return lambda: [one.name for one in threading.enumerate() if one.name.startswith("demora-") and one not in before]


def script(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program with an application `app` on a file, in a process of its own."""
    head = 'import os, signal, sys, threading\nfrom demora import Demora\napp = Demora("sqlite:///jobs.db")\n'
    command = [sys.executable, *options, "-c", head + textwrap.dedent(text)]
    environment = os.environ | {"PYTHONPATH": str(Path(demora.__file__).parents[1])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_job_is_enqueued_and_looked_at_without_an_event_loop(app: Demora) -> None:
    @app.job("mail", queue="post")
    async def mail(to: str) -> None: ...

    job = app.blocking.enqueue("mail", {"to": "a@b.c"}, delay="1h")
    other = mail.options(priority="HIGH").enqueue_blocking(to="c@d.e")
    assert (job.status, job.queue, other.priority.name) == (Status.QUEUED, "post", "HIGH")
    assert [found.id for found in app.blocking.find(queue="post").jobs] == [other.id, job.id]
    assert app.blocking.cancel(job.id) is Status.CANCELLED
    assert app.blocking.retry(job.id).generation == 2
    assert app.blocking.pause("post", "closed").pause is not None
    assert app.blocking.health().status == "degraded"


def test_every_verb_of_the_client_has_its_blocking_form() -> None:
    client = Client(SqliteStore(), Registry())
    verbs = {name for name, _ in inspect.getmembers(client, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert {"get", "pause", "set_pace", "retry_many", "recover", "health"} <= verbs
    assert verbs - NOT_FOR_APPLICATIONS <= {name for name in dir(Blocking) if not name.startswith("_")}


def test_a_blocking_verb_has_the_name_and_the_words_of_its_async_one(app: Demora) -> None:
    assert app.blocking.enqueue.__name__ == "enqueue"
    assert app.blocking.pause.__doc__ == Queues.pause.__doc__


def test_errors_come_through(app: Demora) -> None:
    with pytest.raises(Invalid, match="delay"):
        app.blocking.enqueue("demo.echo", delay="soon")


def test_a_result_is_waited_for_only_so_long(app: Demora) -> None:
    job = app.blocking.enqueue("demo.echo")
    assert app.blocking.wait(job.id, "1ms").status is Status.QUEUED
    with pytest.raises(StillRunning):
        app.blocking.result(job.id, timeout="1ms")


def test_calls_of_many_threads_share_one_loop_and_none_is_lost(app: Demora, our_threads: Names) -> None:
    def enqueue(_: int) -> list[str]:
        return [app.blocking.enqueue("demo.echo").id for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        ids = [id for some in pool.map(enqueue, range(8)) for id in some]
    assert len(set(ids)) == 400
    assert sum(queue.ready for queue in app.blocking.queues()) == 400
    assert our_threads().count("demora-blocking") == 1


async def test_a_call_on_the_thread_of_a_running_loop_is_refused(app: Demora) -> None:
    with pytest.raises(WouldBlock, match=r"blocking\.enqueue would hold up the event loop .* await"):
        app.blocking.enqueue("demo.echo")
    assert (await app.find()).jobs == []
    await app.close()


def test_a_close_ends_the_threads_and_the_next_call_opens_anew(app: Demora, our_threads: Names) -> None:
    with app.blocking:
        job = app.blocking.enqueue("demo.echo")
    assert our_threads() == []
    assert app.blocking.get(job.id).id == job.id


async def test_a_close_ends_a_wait_that_another_thread_is_in(app: Demora) -> None:
    async def under_way() -> bool:
        background = app.blocking._background
        return background is not None and bool(background._calls)

    job = await asyncio.to_thread(app.blocking.enqueue, "demo.echo")
    waiting = asyncio.ensure_future(asyncio.to_thread(app.blocking.wait, job.id))
    await eventually(under_way)
    await asyncio.to_thread(app.blocking.close)
    with pytest.raises(StoreClosed):
        await waiting


# In handlers, and beside an event loop


async def test_plain_handlers_enqueue_from_their_threads_and_nothing_is_lost(app: Demora) -> None:
    @app.job("split")
    def split(parts: int) -> list[str]:
        return [app.blocking.enqueue("demo.echo", {"n": n}).id for n in range(parts)]

    async with app, app.worker(concurrency=8):
        jobs = [await split.enqueue(parts=200) for _ in range(8)]
        ids = [id for job in jobs for id in await app.result(job.id, "60s")]
        assert len(set(ids)) == 1600
        for id in ids:
            assert (await ended(app, id)).status is Status.COMPLETED


@pytest.mark.parametrize("plain", [True, False])
async def test_a_handler_on_a_thread_enqueues_into_memory_too(plain: bool) -> None:
    app = Demora(store=SqliteStore())

    @app.job("first")
    def first() -> str:
        return second.enqueue_blocking(n=1).id if plain else app.blocking.enqueue("second", {"n": 1}).id

    @app.job("second")
    async def second(n: int) -> int:
        return n

    async with app, app.worker():
        id = await app.result((await first.enqueue()).id, "20s")
        assert await app.result(id, "20s") == 1


async def test_an_event_loop_and_the_blocking_face_use_one_file_side_by_side(app: Demora) -> None:
    first = await asyncio.to_thread(app.blocking.enqueue, "demo.echo")
    second = await app.enqueue("demo.echo")
    third = await asyncio.to_thread(app.blocking.enqueue, "demo.echo")
    assert [job.id for job in (await app.find()).jobs] == [third.id, second.id, first.id]
    await app.close()


async def test_a_database_in_memory_is_refused_to_a_second_loop() -> None:
    app = Demora("sqlite://")
    await asyncio.to_thread(app.blocking.enqueue, "demo.echo")
    with pytest.raises(OneLoopOnly):
        await app.find()
    await asyncio.to_thread(app.blocking.close)


# Forks


@pytest.mark.slow
def test_a_forked_child_has_a_loop_and_a_connection_of_its_own(tmp_path: Path) -> None:
    ran = script(
        tmp_path,
        """
        app.blocking.enqueue("demo.echo", {"by": "parent"})
        child = os.fork()
        if child == 0:
            threads = [thread.name for thread in threading.enumerate()]
            app.blocking.enqueue("demo.echo", {"by": "child"})
            locks = [line for line in open("/proc/locks") if f" {os.getpid()} " in line] if sys.platform == "linux" else [1]
            sys.exit(0 if threads == ["MainThread"] and locks else 1)
        assert os.waitpid(child, 0)[1] == 0
        app.blocking.enqueue("demo.echo", {"by": "parent again"})
        print([job.payload["by"] for job in app.blocking.find().jobs])
        """,
        "-W",
        "error",
    )
    assert ran.stdout == "['parent again', 'child', 'parent']\n", ran.stderr


@pytest.mark.slow
def test_a_fork_disturbs_no_call_of_another_thread(tmp_path: Path) -> None:
    ran = script(
        tmp_path,
        """
        job = app.blocking.enqueue("demo.echo")
        def enqueue():
            for _ in range(100):
                app.blocking.enqueue("demo.echo")
        def wait():
            app.blocking.wait(job.id)
        threads = [threading.Thread(target=target, daemon=True) for target in (enqueue, enqueue, wait)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            child = os.fork()
            if child == 0:
                app.blocking.enqueue("demo.echo")
                app.blocking.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        app.blocking.cancel(job.id)
        for thread in threads:
            thread.join()
        print(sum(queue.ready for queue in app.blocking.queues()))
        """,
    )
    assert ran.stdout == "210\n", ran.stderr


@pytest.mark.slow
def test_a_file_that_was_open_on_an_event_loop_at_a_fork_is_refused_in_the_child(tmp_path: Path) -> None:
    ran = script(
        tmp_path,
        """
        import asyncio
        async def main():
            await app.enqueue("demo.echo")
            child = os.fork()
            if child == 0:
                thread = threading.Thread(target=attempt)
                thread.start()
                thread.join()
                os._exit(0)
            os.waitpid(child, 0)
            await app.close()
        def attempt():
            try:
                app.blocking.enqueue("demo.echo")
            except Exception as problem:
                print(type(problem).__name__, flush=True)
        asyncio.run(main())
        """,
    )
    assert ran.stdout == "OpenInParent\n", ran.stderr


@pytest.mark.slow
def test_a_child_whose_fork_called_no_hooks_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    ran = script(
        tmp_path,
        """
        import ctypes
        app.blocking.enqueue("demo.echo")
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            try:
                app.blocking.enqueue("demo.echo")
            except Exception as problem:
                print(type(problem).__name__, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """,
    )
    assert ran.stdout == "OpenInParent\n", ran.stderr


# Signals and the end of a process


@pytest.mark.slow
def test_ctrl_c_ends_a_wait_and_the_next_call_works(tmp_path: Path) -> None:
    ran = script(
        tmp_path,
        """
        job = app.blocking.enqueue("demo.echo")
        def interrupt():
            while not app.blocking._background._calls:
                pass
            os.kill(os.getpid(), signal.SIGINT)
        try:
            threading.Thread(target=interrupt).start()
            app.blocking.wait(job.id)
        except KeyboardInterrupt:
            print(app.blocking.cancel(job.id).name)
        """,
    )
    assert (ran.stdout, ran.returncode) == ("CANCELLED\n", 0), ran.stderr


@pytest.mark.slow
def test_the_end_of_the_process_closes_the_store(tmp_path: Path) -> None:
    ran = script(tmp_path, 'app.blocking.enqueue("demo.echo")', "-W", "error")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not (tmp_path / "jobs.db-wal").exists()
