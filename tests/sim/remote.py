"""Workers that reach the database only through a service: our own worker, over a wire that loses requests and answers.

The service is a process of its own, which is killed and started again. It answers by the verbs of `RemoteWorkers`; the
worker uses the store over HTTP, and between the two stand the bodies and answers of the protocol, as bytes.
"""

import asyncio
import contextlib
import itertools
from datetime import timedelta
from typing import Any

import msgspec

from demora import Demora
from demora.client.workers.remote_workers import RemoteWorkers
from demora.core.spans import span_ms
from demora.errors import DemoraError, StoreClosed, StoreError
from demora.remote.connection import ServiceAnswer
from demora.remote.store import RemoteStore
from demora.wire.worker_protocol import (
    ClaimBody,
    ClaimedView,
    RegisteredView,
    RenewRequest,
    SettleRequest,
    WorkerRequest,
    handed_job_view,
    renewed_view,
    settled_view,
)
from tests.sim.load import register
from tests.sim.loop import OWNER
from tests.sim.receivers import SECRET
from tests.sim.run import Result, Simulation
from tests.sim.world import World

PATIENCE = 10.0  # seconds within which a request is sent again
ANSWER_WITHIN = 30.0
LOSSES = (0.0, 0.02, 0.1)
KILL_EVERY, DOWN = 10.0, (0.1, 5.0)  # seconds
ENCODE = msgspec.json.encode
EXPECTED = ("service killed", "request lost", "answer lost", "claim taken back", "remote worker started")


class Lost(Exception):
    """There is no answer; the request may have been carried out."""


class Request:
    """One request on the wire, and its answer."""

    def __init__(self, method: str, path: str, body: bytes | None) -> None:
        self.method, self.path, self.body = method, path, body or b"{}"
        self.ended, self.gone = asyncio.Event(), False
        self.answer: asyncio.Future[ServiceAnswer | DemoraError | Lost] = asyncio.get_running_loop().create_future()

    def give(self, answer: ServiceAnswer | DemoraError | Lost) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def leave(self) -> None:
        """The client is gone, or has its answer."""
        self.gone = True
        self.ended.set()


class Service:
    """A process of the service."""

    def __init__(self, owner: str, world: World, app: Demora, lease: timedelta, tokens: "itertools.count[int]") -> None:
        self.owner, self._world, self._app, self._lease, self._tokens = owner, world, app, lease, tokens
        self._workers: RemoteWorkers | None = None

    async def run(self) -> None:
        client = await self._app.open()
        self._workers = RemoteWorkers(
            client.store,
            self._app.registry,
            lease=self._lease,
            longest=timedelta(hours=1),
            chance=self._world.random.random,
            monotonic=self._world.loop.time,
            token=lambda: f"{next(self._tokens):08x}",
        )
        await asyncio.Event().wait()

    async def serve(self, request: Request) -> None:
        try:
            request.give(await self._answered(request))
        except StoreError:
            request.give(Lost())
        except DemoraError as problem:
            request.give(problem)

    async def _answered(self, request: Request) -> ServiceAnswer:
        workers = self._workers
        if workers is None:
            raise StoreClosed
        _, _, _, _, *rest = request.path.split("/")
        if not rest:
            asked = msgspec.json.decode(request.body, type=WorkerRequest)
            made = await workers.register(asked.name, asked.types, slots=asked.slots, queues=asked.queues)
            return ServiceAnswer(201, ENCODE(RegisteredView(made.id, span_ms(workers.lease))))
        worker = await workers.worker(rest[0], None)
        match rest[1:]:
            case ["claim"]:
                return await self._claimed(workers, worker, request)
            case ["renew"]:
                reports = msgspec.json.decode(request.body, type=RenewRequest).reports()
                return ServiceAnswer(200, ENCODE(renewed_view(await workers.renew(worker, reports), workers.lease)))
            case ["settle"]:
                outcomes = msgspec.json.decode(request.body, type=SettleRequest).outcomes()
                return ServiceAnswer(200, ENCODE(settled_view(outcomes, await workers.settle(worker, outcomes))))
        await workers.remove(worker)
        return ServiceAnswer(204, b"")

    async def _claimed(self, workers: RemoteWorkers, worker: Any, request: Request) -> ServiceAnswer:
        limit, wait, claim_id = msgspec.json.decode(request.body, type=ClaimBody).checked()
        handed = await workers.claim(worker, limit, wait=wait, ended=request.ended, claim_id=claim_id)
        if request.gone and handed:
            self._world.happened("claim taken back")
            with contextlib.suppress(StoreError):
                await workers.take_back(handed)
        return ServiceAnswer(200, ENCODE(ClaimedView([handed_job_view(one) for one in handed])))


class Wire:
    """What worker and service say to each other, and what of it is lost."""

    def __init__(self, world: World) -> None:
        self.world, self.service = world, None  # type: tuple[World, Service | None]
        self.requests_lost = self.answers_lost = 0.0

    def loses(self, rate: float, what: str) -> bool:
        lost = self.world.random.random() < rate
        if lost:
            self.world.happened(what)
        return lost


class SimConnection:
    """The connection of a worker: it repeats what got no answer, as the one over HTTP does."""

    url = "http://simulated"

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def ask(self, method: str, path: str, body: bytes | None = None, **options: Any) -> ServiceAnswer:
        now, pause = self._wire.world.loop.time, 0.1
        until = now() + PATIENCE
        while True:
            try:
                return await self._try(Request(method, path, body), options.get("wait", 0.0))
            except Lost:
                if now() + pause > until:
                    raise StoreError("simulated: the service does not answer") from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    async def _try(self, request: Request, wait: float) -> ServiceAnswer:
        wire, service = self._wire, self._wire.service
        if service is None or wire.loses(wire.requests_lost, "request lost"):
            raise Lost
        wire.world.on_death(service.owner, lambda: request.give(Lost()))
        wire.world.on_death(OWNER.get(), request.leave)
        wire.world.loop.spawn(service.owner, service.serve(request))
        try:
            async with asyncio.timeout(ANSWER_WITHIN + wait):
                answer = await request.answer
        except TimeoutError:
            raise Lost from None
        finally:
            request.leave()
        if isinstance(answer, Lost) or wire.loses(wire.answers_lost, "answer lost"):
            raise Lost
        if isinstance(answer, DemoraError):
            raise answer
        return answer


class SimRemoteStore(RemoteStore):
    """The store over HTTP, on the one loop of the simulation."""

    def sibling(self) -> None:  # type: ignore[override]
        return None


class RemoteApp(Demora):
    """An application that uses the simulated service."""

    wire: Wire

    def _is_remote(self) -> bool:
        return True

    def _make_store(self) -> Any:
        return SimRemoteStore(SimConnection(self.wire))  # type: ignore[arg-type]


class RemoteSimulation(Simulation):
    """A seed with a service, come to life. Every other worker is a remote one."""

    def __init__(self, seed: int, jobs: int) -> None:
        super().__init__(seed, jobs)
        self._recorder.names_workers = False  # a handler does not know the id that the service gave to its worker
        self._wire = Wire(self._world)
        self._lease = timedelta(seconds=self._world.random.choice((2, 5, 10)))
        self._tokens, self._services = itertools.count(), itertools.count(1)
        self._healed = False
        self._plain: list[str] = []

    async def _live(self) -> list[str]:
        self._serve()
        chance = self._world.random
        self._wire.requests_lost, self._wire.answers_lost = chance.choice(LOSSES), chance.choice(LOSSES)
        self._world.loop.spawn("service-nemesis", self._kill_services())
        return await super()._live()

    def _serve(self) -> None:
        service = Service(f"service-{next(self._services)}", self._world, self._app(), self._lease, self._tokens)
        self._world.loop.spawn(service.owner, service.run())
        self._wire.service = service

    async def _kill_services(self) -> None:
        chance = self._world.random
        while not self._healed:
            await asyncio.sleep(chance.expovariate(1 / KILL_EVERY))
            service, self._wire.service = self._wire.service, None
            if service is not None and not self._healed:
                self._world.happened("service killed")
                self._world.kill(service.owner)
            await asyncio.sleep(chance.uniform(*DOWN))
            self._serve()

    async def _work(self, owner: str) -> None:
        if self._healed or self._started % 2 == 0:
            self._plain.append(owner)
        else:
            self._world.happened("remote worker started")
        await super()._work(owner)

    def _app(self) -> Demora:
        owner = OWNER.get()
        if not owner.startswith("worker") or owner in self._plain:
            return super()._app()
        app = RemoteApp(new_id=self._world.new_id)
        app.wire = self._wire
        register(app, self._world, self._recorder)
        app.configure(webhook_secret=SECRET)
        app.sender = self._receivers  # type: ignore[assignment]
        return app

    async def _drain(self) -> list[str]:
        """Webhooks, schedules and expiries are left to workers on the database, so some of them must live."""
        self._healed = True
        self._wire.requests_lost = self._wire.answers_lost = 0.0
        heal = self._nemesis.heal

        def heal_both(number: int) -> None:
            heal(number)
            for _ in range(number - sum(self._world.loop.alive(owner) for owner in self._plain)):
                self._nemesis.start()

        self._nemesis.heal = heal_both  # type: ignore[method-assign]
        return await super()._drain()


def simulate(seed: int, jobs: int) -> Result:
    """Live through one seed with remote workers, and judge it."""
    assert OWNER.get() == "world"
    return RemoteSimulation(seed, jobs).run()
