"""`JobFunction`: what `@app.job` makes of a function."""

import functools
from typing import TYPE_CHECKING, Any

from .core.job import Job
from .handlers import Handler

if TYPE_CHECKING:
    from .app import Demora


class JobFunction:
    """A registered function: call it as before, or enqueue it."""

    def __init__(self, app: "Demora", handler: Handler, options: dict[str, Any] | None = None) -> None:
        self._app, self.handler, self._options = app, handler, options or {}
        functools.update_wrapper(self, handler.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    @property
    def type(self) -> str:
        return self.handler.type

    def options(self, **options: Any) -> "JobFunction":
        """The same function with options for `enqueue`: `send.options(delay="1h", priority="HIGH").enqueue(to=…)`."""
        return JobFunction(self._app, self.handler, self._options | options)

    async def enqueue(self, **payload: Any) -> Job:
        """Store a job that calls this function with these arguments."""
        return await self._app.enqueue(self.type, payload, **self._options)

    def enqueue_blocking(self, **payload: Any) -> Job:
        """`enqueue` for code without an event loop; see `Demora.blocking`."""
        return self._app.blocking.enqueue(self.type, payload, **self._options)

    def make(self, **payload: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """A wish for `enqueue_many`."""
        return self.type, payload, self._options
