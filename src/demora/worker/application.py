"""What a worker needs of the application whose jobs it runs. `demora.Demora` provides it; this room never imports it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from ..core.retention import Retention
from ..handlers.registry import Hook, Middleware, Registry
from ..store.store import Store


class WorkerSettings(Protocol):
    """The settings that a worker reads."""

    @property
    def concurrency(self) -> int: ...
    @property
    def lease(self) -> timedelta: ...
    @property
    def grace(self) -> timedelta: ...
    @property
    def max_timeout(self) -> timedelta: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def log_errors(self) -> str: ...
    @property
    def asked_paces(self) -> str: ...
    @property
    def database_url(self) -> str: ...
    @property
    def redis_url(self) -> str | None: ...


class OpenClient(Protocol):
    """A client whose store is open on the running loop."""

    @property
    def store(self) -> Store: ...


class OutboundSender(Protocol):
    """The sender of outbound HTTP requests."""

    def leave_room(self, slots: int) -> None:
        """Keep any single host from taking all of a worker's slots."""
        ...


class Application(Protocol):
    """The handlers, hooks, settings and store of an application."""

    @property
    def registry(self) -> Registry: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...
    @property
    def startup_hooks(self) -> Sequence[Hook]: ...
    @property
    def shutdown_hooks(self) -> Sequence[Hook]: ...
    @property
    def sender(self) -> OutboundSender: ...
    @property
    def settings(self) -> WorkerSettings: ...

    def settings_with(self, **given: Any) -> WorkerSettings:
        """Return the settings with these values instead; `Invalid` names a value that the setting does not accept."""
        ...

    def in_memory(self) -> bool:
        """Return whether the jobs live in this process's memory, where no other process can reach them."""
        ...

    async def open(self) -> OpenClient:
        """Open the store on the running loop, unless it is open there, and return the client."""
        ...

    async def apply_paces(self) -> None:
        """Set the paces that the code and the settings give to queues."""
        ...

    async def define_schedules(self, process_id: str) -> bool:
        """Bring the schedules of the code into the database. Returns whether that must be done again later."""
        ...

    async def switch_builtins(self) -> None:
        """Switch off the built-in handlers that the settings do not allow."""
        ...
