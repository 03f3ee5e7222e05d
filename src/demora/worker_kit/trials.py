"""The trials: each gives a worker jobs, disturbs it, and compares the jobs of the service with the promises.

The worker under trial runs these types: `example.sum` returns the sum of `numbers`, `example.sleep` sleeps for `ms` and
stops when it is told to, and `example.fail` fails, for good if `permanent` is true.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from ..app import Demora
from ..core.job import Job
from ..core.states import Status
from ..errors import DemoraError, WrongState
from ..remote.store import RemoteStore
from .proxy import Proxy

PATIENCE = 30.0  # seconds beside the lease that a worker has for anything
LOOK = 0.05  # seconds between two looks
QUEUE = "worker-kit"


class Failed(Exception):
    """The worker broke a promise."""


class Kit:
    """A service, the command that starts a worker of it, and the proxy between the two."""

    def __init__(self, app: Demora, command: Sequence[str], proxy: Proxy, url: str, *, lease: float) -> None:
        self._app, self._command, self.proxy, self._url, self.lease = app, command, proxy, url, lease
        self._environment = dict(os.environ)
        self._jobs: list[Job] = []  # of this trial
        self._others: frozenset[str] = frozenset()  # workers of earlier trials, which count as alive for some time

    def give_key(self, key: str | None) -> None:
        """Give the workers this API key in their environment."""
        if key is not None:
            self._environment["DEMORA_API_KEY"] = key

    async def begin(self) -> None:
        """Begin a trial."""
        self._jobs = []
        self._others = frozenset(await self._live())

    async def clean_up(self) -> None:
        """Cancel the jobs that a trial has left, so that no later one meets them."""
        self.proxy.mend()
        with contextlib.suppress(DemoraError):
            for job in self._jobs:
                if not (await self._app.get(job.id)).status.ended:
                    await self._app.cancel(job.id)

    @asynccontextmanager
    async def worker(self, *, directly: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a worker, and kill it at the end of the block if it still runs. It speaks to the service through the proxy,
        or `directly`."""
        url = (await self._store()).connection.url if directly else self._url
        command = [part.replace("{url}", url) for part in self._command]
        process = await asyncio.create_subprocess_exec(
            *command, env=self._environment, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self.signal(process, signal.SIGKILL)
            await process.wait()

    def signal(self, process: asyncio.subprocess.Process, number: int) -> None:
        """Send a signal to a worker and to all processes that it has started."""
        os.killpg(process.pid, number)

    async def add(self, type: str, timeout: str | None = None, **payload: object) -> Job:
        job: Job = await self._app.enqueue(
            f"example.{type}", payload, queue=QUEUE, max_retries=2, retry_delay="100ms", timeout=timeout
        )
        self._jobs.append(job)
        return job

    async def ended(self, job: Job) -> Job:
        """Return the job when it has ended."""
        return await self.until(job, "ends", lambda job: job.status.ended)

    async def running(self, job: Job) -> Job:
        return await self.until(job, "starts", lambda job: job.status is Status.PROCESSING)

    async def until(self, job: Job, what: str, fact: Callable[[Job], bool]) -> Job:
        """Return the job when a fact holds of it; `Failed` if that takes too long."""
        deadline = time.monotonic() + PATIENCE + 3 * self.lease
        while not fact(seen := await self._app.get(job.id)):
            if time.monotonic() > deadline:
                raise Failed(f"the job {job.id} never {what}; it is {seen.status.name}, {seen.error or 'without an error'}")
            await asyncio.sleep(LOOK)
        return seen

    async def cancel(self, job: Job) -> None:
        await self._app.cancel(job.id)

    async def cancel_waiting(self, job: Job) -> None:
        """Cancel a job, whether it has ended meanwhile or not."""
        with contextlib.suppress(WrongState):
            await self._app.cancel(job.id)

    async def pause(self) -> None:
        await (await self._app.open()).pause(QUEUE)

    async def resume(self) -> None:
        await (await self._app.open()).resume(QUEUE)

    async def registered(self) -> dict[str, int]:
        """The slots of the live workers that this trial has started, by their ids."""
        return {id: slots for id, slots in (await self._live()).items() if id not in self._others}

    async def slots(self) -> int:
        """How many jobs the worker of this trial runs at the same time."""
        [slots] = (await self.registered()).values()
        return slots

    async def forget_workers(self) -> None:
        """Have the service forget the workers of this trial."""
        for id in await self.registered():
            await (await self._store()).connection.ask("DELETE", f"/api/v1/workers/{id}")

    async def _live(self) -> dict[str, int]:
        workers = await (await self._app.open()).workers()
        return {worker.id: worker.slots for worker in workers if "example.sum" in worker.types}

    async def _store(self) -> RemoteStore:
        store = (await self._app.open()).store
        assert isinstance(store, RemoteStore)
        return store


async def runs_jobs(kit: Kit) -> None:
    """It runs jobs, and reports results and errors."""
    async with kit.worker():
        sums, fails = await kit.add("sum", numbers=[1, 2, 39]), await kit.add("fail", permanent=True)
        again = await kit.add("fail", permanent=False)
        _expect(await kit.ended(sums), Status.COMPLETED, attempts=1, result=42)
        _expect(await kit.ended(fails), Status.FAILED, attempts=1)
        _expect(await kit.ended(again), Status.FAILED, attempts=3)


async def keeps_its_leases(kit: Kit) -> None:
    """It renews the lease of a job that runs for longer than the lease."""
    async with kit.worker():
        job = await kit.add("sleep", ms=int(kit.lease * 2000))
        ended = await kit.ended(job)
        _expect(ended, Status.COMPLETED, attempts=1)
        if ended.started_at is None or ended.completed_at is None:
            raise Failed("the job has no times")
        if (ended.completed_at - ended.started_at).total_seconds() < kit.lease:
            raise Failed("it settled the job before it had run")


async def keeps_the_timeout(kit: Kit) -> None:
    """It stops a job at its timeout, and settles it as failed."""
    async with kit.worker():
        job = await kit.add("sleep", timeout="1s", ms=600_000)
        ended = await kit.until(job, "is stopped", lambda job: bool(job.attempts))
        await kit.cancel_waiting(job)
        if _is_lost(ended):
            raise Failed("it did not settle the job: its lease lapsed")


async def survives_a_kill(kit: Kit) -> None:
    """Killed with -9, it loses nothing: another worker runs its job."""
    async with kit.worker() as process:
        job = await kit.add("sleep", ms=1000)
        await kit.running(job)
        kit.signal(process, signal.SIGKILL)
        await process.wait()
    async with kit.worker():
        ended = await kit.ended(job)
    _expect(ended, Status.COMPLETED, attempts=2)
    if not _is_lost(ended):
        raise Failed("the attempt of the killed worker is not recorded as lost")


async def yields_after_a_stop(kit: Kit) -> None:
    """Stopped beyond its lease and continued, it settles nothing of the run that took over, and works on."""
    async with kit.worker() as first:
        job = await kit.add("sleep", ms=int(kit.lease * 500))
        await kit.running(job)
        kit.signal(first, signal.SIGSTOP)
        async with kit.worker() as second:
            await kit.until(job, "is taken over", lambda job: job.attempt == 2)
            kit.signal(first, signal.SIGCONT)
            ended = await kit.ended(job)
            kit.signal(second, signal.SIGKILL)
        _expect(ended, Status.COMPLETED, attempts=2)
        late = await kit.add("sum", numbers=[1])
        _expect(await kit.ended(late), Status.COMPLETED, attempts=1, result=1)


async def hears_of_a_cancel(kit: Kit) -> None:
    """It stops a job that was cancelled, within a lease."""
    async with kit.worker():
        job = await kit.add("sleep", ms=600_000)
        await kit.running(job)
        asked = time.monotonic()
        await kit.cancel(job)
        _expect(await kit.ended(job), Status.CANCELLED, attempts=1)
        if time.monotonic() - asked > kit.lease + 5:
            raise Failed(f"it stopped the job only {time.monotonic() - asked:.1f} s after the cancel")


async def leaves_a_paused_queue(kit: Kit) -> None:
    """It gets no job of a paused queue, and gets it once the queue is resumed."""
    async with kit.worker():
        await kit.ended(await kit.add("sum", numbers=[1]))
        await kit.pause()
        try:
            job = await kit.add("sum", numbers=[2])
            await asyncio.sleep(1)
            if (await kit.until(job, "waits", lambda job: True)).status is not Status.QUEUED:
                raise Failed("it ran a job of a paused queue")
        finally:
            await kit.resume()
        _expect(await kit.ended(job), Status.COMPLETED, attempts=1, result=2)


async def repeats_a_claim(kit: Kit) -> None:
    """It repeats a claim whose answer is lost, and the job loses no attempt."""
    async with kit.worker():
        await kit.ended(await kit.add("sum", numbers=[1]))
        kit.proxy.lose_answer("claim")
        job = await kit.add("sum", numbers=[2])
        await _caught(kit, "claim a job")
        _expect(await kit.ended(job), Status.COMPLETED, attempts=1, result=2)


async def repeats_a_renewal(kit: Kit) -> None:
    """It repeats a renewal that is lost, and keeps its lease."""
    async with kit.worker():
        await kit.ended(await kit.add("sum", numbers=[1]))
        kit.proxy.lose_request("renew")
        job = await kit.add("sleep", ms=int(kit.lease * 2000))
        await _caught(kit, "renew a lease")
        _expect(await kit.ended(job), Status.COMPLETED, attempts=1)


async def repeats_a_settle(kit: Kit) -> None:
    """It repeats a settle that is lost, and the job loses no attempt. It works on after a lost answer too."""
    async with kit.worker():
        await kit.ended(await kit.add("sum", numbers=[1]))
        kit.proxy.lose_request("settle")
        job = await kit.add("sum", numbers=[2])
        await _caught(kit, "settle a job")
        _expect(await kit.ended(job), Status.COMPLETED, attempts=1, result=2)
        kit.proxy.lose_answer("settle")
        _expect(await kit.ended(await kit.add("sum", numbers=[3])), Status.COMPLETED, attempts=1, result=3)
        _expect(await kit.ended(await kit.add("sum", numbers=[4])), Status.COMPLETED, attempts=1, result=4)


async def settles_too_late(kit: Kit) -> None:
    """Its settle arrives after the lease has lapsed and another run has taken over: it changes nothing, and works on."""
    async with kit.worker():
        await kit.ended(await kit.add("sum", numbers=[1]))
        kit.proxy.hold("settle")
        job = await kit.add("sleep", ms=int(kit.lease * 300))
        await _caught(kit, "settle a job")
        async with kit.worker(directly=True):
            await kit.until(job, "is taken over", lambda job: job.attempt == 2)
            kit.proxy.mend()
            ended = await kit.ended(job)
        _expect(ended, Status.COMPLETED, attempts=2)
        if not _is_lost(ended):
            raise Failed("its late settle was recorded")
        _expect(await kit.ended(await kit.add("sum", numbers=[2])), Status.COMPLETED, attempts=1, result=2)


async def stops_when_cut_off(kit: Kit) -> None:
    """Cut off for longer than its lease, it stops its jobs, and works on when the service is back."""
    async with kit.worker():
        await kit.ended(await kit.add("sum", numbers=[1]))
        jobs = [await kit.add("sleep", ms=600_000) for _ in range(await kit.slots())]
        for job in jobs:
            await kit.running(job)
        await kit.proxy.answered("claim")  # now it knows of them
        with kit.proxy.cut_off():
            for job in jobs:
                await kit.cancel(job)
            await asyncio.sleep(kit.lease * 1.5)
        late = await kit.add("sum", numbers=[2])
        _expect(await kit.ended(late), Status.COMPLETED, attempts=1, result=2)


async def registers_again(kit: Kit) -> None:
    """It registers again when the service has forgotten it (404)."""
    async with kit.worker():
        await kit.ended(await kit.add("sum", numbers=[1]))
        await kit.forget_workers()
        _expect(await kit.ended(await kit.add("sum", numbers=[2])), Status.COMPLETED, attempts=1, result=2)


async def shuts_down(kit: Kit) -> None:
    """Told to stop (SIGTERM), it hands back its job, deregisters and exits."""
    async with kit.worker() as process:
        job = await kit.add("sleep", ms=600_000)
        await kit.running(job)
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            raise Failed(f"it did not exit within {PATIENCE:g} s") from None
        back = await kit.until(job, "is handed back", lambda job: job.status.waiting)
        await kit.cancel(job)
        if back.attempts:
            raise Failed("its job was not handed back: the run counts as an attempt")
        if await kit.registered():
            raise Failed("it is still registered")


Trial = Callable[[Kit], Awaitable[None]]
TRIALS: tuple[Trial, ...] = (
    runs_jobs,
    keeps_its_leases,
    keeps_the_timeout,
    hears_of_a_cancel,
    leaves_a_paused_queue,
    repeats_a_claim,
    repeats_a_renewal,
    repeats_a_settle,
    settles_too_late,
    stops_when_cut_off,
    registers_again,
    survives_a_kill,
    yields_after_a_stop,
    shuts_down,
)


async def attempt(kit: Kit, trial: Trial) -> str | None:
    """Run one trial. Returns what went wrong, None if nothing did."""
    try:
        await kit.begin()
        await trial(kit)
    except Failed as failure:
        return str(failure)
    except ProcessLookupError:
        return "it ended by itself"
    except OSError as problem:
        return f"it cannot be started: {problem}"
    except DemoraError as problem:
        return f"{type(problem).__name__}: {problem}"
    finally:
        await kit.clean_up()
    return None


async def _caught(kit: Kit, what: str) -> None:
    """Return when the proxy has done what it was told."""
    try:
        await asyncio.wait_for(kit.proxy.caught.wait(), PATIENCE + kit.lease)
    except TimeoutError:
        raise Failed(f"it did not {what}") from None


def _is_lost(job: Job) -> bool:
    """Whether the first run of a job lost its lease."""
    return (job.attempts[0].error or "").startswith("WorkerLost:")


def _expect(job: Job, status: Status, *, attempts: int, result: object = None) -> None:
    if job.status is not status:
        raise Failed(f"the job {job.id} ended {job.status.name} and not {status.name}: {job.error}")
    if len(job.attempts) != attempts:
        raise Failed(f"the job {job.id} took {len(job.attempts)} attempts and not {attempts}")
    if result is not None and job.result != result:
        raise Failed(f"the job {job.id} has the result {job.result!r} and not {result!r}")
