"""`JobFunction`: the result of decorating a function with `@app.job`."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Never, Protocol

from ..core.job import Job
from ..errors import Invalid
from .registry import Handler


class BlockingEnqueuer(Protocol):
    """Stores a job and blocks until it is stored; `demora.Demora.blocking` is one."""

    @property
    def enqueue(self) -> Callable[..., Job]: ...


class Enqueuer(Protocol):
    """Stores jobs; `demora.Demora` is one."""

    @property
    def enqueue(self) -> Callable[..., Awaitable[Job]]: ...
    @property
    def blocking(self) -> BlockingEnqueuer: ...


class JobFunction:
    """A registered function. Call it as before, or enqueue a job that calls it."""

    def __init__(self, app: Enqueuer, handler: Handler, options: dict[str, Any] | None = None) -> None:
        self._app, self.handler, self._options = app, handler, options or {}
        functools.update_wrapper(self, handler.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    @property
    def type(self) -> str:
        """The type of its jobs."""
        return self.handler.type

    def options(self, **options: Any) -> "JobFunction":
        """Return the function with options for `enqueue`: `send.options(delay="1h", priority="HIGH").enqueue(to=…)`."""
        return JobFunction(self._app, self.handler, self._options | options)

    async def enqueue(self, /, *unnamed: Never, **payload: Any) -> Job:
        """Store a job that calls this function with these arguments; they must be given by name."""
        self._refuse(unnamed, "enqueue")
        return await self._app.enqueue(self.type, payload, **self._options)

    def enqueue_blocking(self, /, *unnamed: Never, **payload: Any) -> Job:
        """`enqueue` for code without an event loop; see `Demora.blocking`."""
        self._refuse(unnamed, "enqueue_blocking")
        return self._app.blocking.enqueue(self.type, payload, **self._options)

    def make(self, /, *unnamed: Never, **payload: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Return a request for `enqueue_many`."""
        self._refuse(unnamed, "make")
        return self.type, payload, self._options

    def _refuse(self, unnamed: Sequence[Any], verb: str) -> None:
        if unnamed:
            names = ", ".join(f"{name}=…" for name in self.handler.field_names) or "field=…"
            raise Invalid("payload", f"must be given by name: {verb}({names}), or {verb}(**fields) if it is a dict")
