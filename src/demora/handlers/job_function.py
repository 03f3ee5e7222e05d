"""`JobFunction`: the result of decorating a function with `@app.job`."""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, overload

from ..core.job import Job
from ..core.request import EnqueueOptions
from ..errors import Invalid, no_verb_of_a_job
from .context import Context
from .registry import Handler

Arguments = ParamSpec("Arguments")  # the arguments of the function itself
Payload = ParamSpec("Payload")  # the same without the context
R_co = TypeVar("R_co", covariant=True)  # what a call returns: of an async function, a coroutine
T = TypeVar("T")  # the result of a job


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


class JobFunction(Generic[Arguments, R_co, Payload, T]):
    """A registered function. Call it as before, or enqueue a job that calls it."""

    def __init__(self, app: Enqueuer, handler: Handler, options: EnqueueOptions | None = None) -> None:
        self._app, self.handler = app, handler
        self._options: EnqueueOptions = options or {}
        functools.update_wrapper(self, handler.function)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> R_co:
        called: R_co = self.handler.function(*args, **kwargs)
        return called

    def __repr__(self) -> str:
        return f"<JobFunction {self.type}: {self.handler.function.__qualname__}>"

    @property
    def type(self) -> str:
        """The type of its jobs."""
        return self.handler.type

    def options(self, **options: Unpack[EnqueueOptions]) -> "JobFunction[Arguments, R_co, Payload, T]":
        """Return the function with options for `enqueue`: `send.options(delay="1h", priority="HIGH").enqueue(to=…)`."""
        return JobFunction(self._app, self.handler, self._options | options)

    async def enqueue(self, /, *unnamed: Payload.args, **payload: Payload.kwargs) -> Job[T]:
        """Store a job that calls this function with these arguments; they must be given by name."""
        self._refuse(unnamed, "enqueue")
        return await self._app.enqueue(self.type, payload, **self._options)

    def enqueue_blocking(self, /, *unnamed: Payload.args, **payload: Payload.kwargs) -> Job[T]:
        """`enqueue` for code without an event loop; see `Demora.blocking`."""
        self._refuse(unnamed, "enqueue_blocking")
        return self._app.blocking.enqueue(self.type, payload, **self._options)

    def make(self, /, *unnamed: Payload.args, **payload: Payload.kwargs) -> tuple[str, dict[str, Any], EnqueueOptions]:
        """Return a request for `enqueue_many`."""
        self._refuse(unnamed, "make")
        return self.type, payload, self._options

    def _refuse(self, unnamed: Sequence[Any], verb: str) -> None:
        if unnamed:
            names = ", ".join(f"{name}=…" for name in self.handler.field_names) or "field=…"
            raise Invalid("payload", f"must be given by name: {verb}({names}), or {verb}(**fields) if it is a dict")

    if not TYPE_CHECKING:  # a type checker would take it for a class that has any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_verb_of_a_job(self, name)


AnyJobFunction: TypeAlias = JobFunction[..., Any, ..., Any]


class TakesContext(Protocol[Payload, R_co]):
    """A function whose first parameter is `ctx: Context`, which is no part of the payload."""

    def __call__(self, ctx: Context, *args: Payload.args, **kwargs: Payload.kwargs) -> R_co: ...


class Register(Protocol):
    """The decorator that `@app.job(…)` makes, for type checkers: the arguments and the result of the function stay."""

    @overload
    def __call__(
        self, function: TakesContext[Payload, Coroutine[Any, Any, T]], /
    ) -> JobFunction[Concatenate[Context, Payload], Coroutine[Any, Any, T], Payload, T]: ...
    @overload
    def __call__(
        self, function: TakesContext[Payload, T], /
    ) -> JobFunction[Concatenate[Context, Payload], T, Payload, T]: ...
    @overload
    def __call__(
        self, function: Callable[Payload, Coroutine[Any, Any, T]], /
    ) -> JobFunction[Payload, Coroutine[Any, Any, T], Payload, T]: ...
    @overload
    def __call__(self, function: Callable[Payload, T], /) -> JobFunction[Payload, T, Payload, T]: ...
