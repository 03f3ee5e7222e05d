"""Handlers and their registry: the function for a job type, the defaults of its jobs, and its arguments from a payload."""

import builtins
import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack, cast

import msgspec

from ..core.job import DEFAULT_TIMEOUT, Priority
from ..core.payload import UNKNOWN_FIELD, pack_object, unpack
from ..core.request import (
    JobOptions,
    check_flag,
    check_priority,
    check_queue,
    check_retries,
    check_retry_delay,
    check_timeout,
    check_type,
    check_webhook,
)
from ..core.spans import size, span
from ..core.verdict import CAP, RetryState
from ..errors import BadHandler, Invalid, UnknownJobType, did_you_mean, instead_of, ours
from .context import Context
from .payload_types import PayloadReader, example_of, payload_reader, result_reader

Permanent = type[BaseException] | Sequence[type[BaseException]]
Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, Next], Awaitable[Any]]
Hook = Callable[[], Awaitable[None] | None]  # runs when a worker starts or stops


class HandlerOptions(TypedDict, total=False):
    """The options of `@app.job`. None means not given."""

    queue: str | None
    priority: Priority | str | None
    max_retries: int | None
    retry_delay: timedelta | str | None
    timeout: timedelta | str
    retry_cap: timedelta | str
    jitter: float
    permanent: Permanent
    process: bool
    memory: str | None
    webhook_url: str | None
    webhook_on_cancel: bool | None


class Defaults(msgspec.Struct, frozen=True):
    """The defaults for the jobs of one type, and how their failures are retried."""

    queue: str | None = None
    priority: Priority | None = None
    max_retries: int | None = None
    retry_delay: timedelta | None = None
    timeout: timedelta = DEFAULT_TIMEOUT
    retry_cap: timedelta = CAP
    jitter: float = 0.0
    permanent: tuple[type[BaseException], ...] = ()
    process: bool = False  # whether the handler runs in a child process
    memory: int | None = None  # most bytes of address space of that process
    webhook_url: str | None = None
    webhook_on_cancel: bool | None = None


_ENQUEUE_DEFAULTS = ("queue", "priority", "max_retries", "retry_delay", "webhook_url", "webhook_on_cancel")


class Handler:
    """A function for one job type. The worker calls it with the fields of the payload as keyword arguments, checked against
    its annotations. A parameter named `ctx` or annotated `Context` receives the context of the run. `check` may refuse
    further values by raising `Invalid`."""

    def __init__(
        self,
        type: str,
        function: Callable[..., Any],
        defaults: Defaults,
        *,
        check: Callable[[Any], None] | None = None,
    ) -> None:
        self._check = check
        self.type, self.function, self.defaults = check_type(type), function, defaults
        self._usual = [(name, value) for name in _ENQUEUE_DEFAULTS if (value := getattr(defaults, name)) is not None]
        self.is_async = inspect.iscoroutinefunction(function)
        self._context_name, self._reader = _signature(type, function)
        self._read_result = _result_reader(function)

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields that the function declares."""
        return self._reader.names

    def fields(self, payload: bytes) -> Any:
        """Return the checked fields of a payload; `Invalid` names a field that does not fit the function."""
        try:
            fields = self._reader.read(payload)
        except Invalid as problem:
            raise self._with_known_fields(problem) from None
        if self._check is not None:
            self._check(fields)
        return fields

    def example(self) -> str | None:
        """Return a payload that fits the function, as JSON; None if none can be made from its annotations."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        parameters = inspect.signature(self.function).parameters
        required = [name for name in self.field_names if parameters[name].default is inspect.Parameter.empty]
        try:
            made = {name: example_of(hints.get(name, Any)) for name in required or self.field_names}
            payload = pack_object(made, "payload")
            self.fields(payload)
        except (Invalid, TypeError, RuntimeError):  # such as a type of another library, or one with a pattern
            return None
        return payload.decode()

    def _with_known_fields(self, problem: Invalid) -> Invalid:
        """Return the error about an unknown field with the nearest one, or with all that the function has."""
        _, _, name = problem.field.partition(".")
        if problem.reason != UNKNOWN_FIELD or "." in name:
            return problem
        fields = ", ".join(self.field_names) or "none"
        hint = did_you_mean(name, self.field_names) or f"; known: {fields}"
        return Invalid(problem.field, f"{problem.reason}{hint}{_as_option(name)}")

    def with_defaults(self, options: JobOptions) -> JobOptions:
        """Return the options of a job, with the defaults of this type for those that are not given."""
        filled: Any = dict(options)
        for name, usual in self._usual:
            if filled.get(name) is None:
                filled[name] = usual
        return cast(JobOptions, filled)

    def result(self, packed: bytes | None) -> Any:
        """Return a stored result as the type that the function is annotated to return, or as JSON has it if it does not
        fit."""
        if packed is None or self._read_result is None:
            return None if packed is None else unpack(packed)
        try:
            return self._read_result(packed)
        except (msgspec.ValidationError, ValueError):
            return unpack(packed)

    def retry_state(self, retry_state: RetryState) -> RetryState:
        """Return the retry state of a job with the cap and jitter of this type."""
        usual = self.defaults
        if usual.jitter or usual.retry_cap is not CAP:
            return msgspec.structs.replace(retry_state, retry_cap=usual.retry_cap, jitter=usual.jitter)
        return retry_state

    def arguments(self, payload: bytes, context: Context) -> dict[str, Any]:
        """Return the keyword arguments for a stored payload."""
        arguments = self._reader.arguments(self.fields(payload), payload)
        if self._context_name is not None:
            arguments[self._context_name] = context
        return arguments


class Registry:
    """The handlers of a process, by type."""

    def __init__(self, *, known_types_only: bool = False) -> None:
        self.known_types_only = known_types_only
        self._handlers: dict[str, Handler] = {}
        self.known: frozenset[str] = frozenset()  # the types that have a handler
        self._off: dict[str, str] = {}  # types that were switched off, with the reason

    def register(self, handler: Handler) -> None:
        """Add a handler; `BadHandler` if another function is registered for its type."""
        if handler.type in self._handlers and self._handlers[handler.type].function is not handler.function:
            raise BadHandler(handler.type, "another function is registered for this type already")
        self._handlers[handler.type] = handler
        self.known |= {handler.type}
        self._off.pop(handler.type, None)

    def switch_off(self, types: Iterable[str], reason: str) -> list[str]:
        """Remove the handlers of these types and refuse such jobs. Returns the types that were registered until now."""
        gone = [type for type in types if self._handlers.pop(type, None) is not None]
        self.known -= frozenset(gone)
        self._off |= dict.fromkeys(gone, reason)
        return gone

    def get(self, type: str) -> Handler | None:
        """Return the handler for a type, if there is one."""
        return self._handlers.get(type)

    def expect(self, type: str) -> Handler | None:
        """Return the handler for a type, if there is one. Refuses a type that is switched off, and an unknown type if
        `known_types_only` is set."""
        handler = self._handlers.get(type)
        if type in self._off:
            raise Invalid("type", f"the built-in handler {type} is switched off: {self._off[type]}")
        if handler is None and self.known_types_only:
            raise UnknownJobType(type, list(self._handlers), did_you_mean(type, self._handlers))
        return handler

    def refuse_misspelt(self, type: str) -> None:
        """Refuse a type without a handler that is similar to one with a handler."""
        if type not in self._handlers and (hint := did_you_mean(type, self._handlers)):
            raise UnknownJobType(type, list(self._handlers), hint)

    def retry_state(self, type: str, retry_state: RetryState) -> RetryState:
        """Return the retry state of a job with the cap and jitter of its type, unchanged if the type is unknown."""
        handler = self._handlers.get(type)
        return retry_state if handler is None else handler.retry_state(retry_state)

    def types(self) -> tuple[str, ...]:
        """Return the types that have a handler, sorted."""
        return tuple(sorted(self._handlers))

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())


def allowed_time(handler: Handler | None, asked: timedelta | None, longest: timedelta) -> timedelta:
    """Return how long a job may run: what it asks for, or else the timeout of its type. Both stay within `longest`, also for
    a job that was stored before this limit was set, unless the timeout of the type itself is longer."""
    usual = DEFAULT_TIMEOUT if handler is None else handler.defaults.timeout
    return min(asked, max(usual, longest)) if asked else usual


def _as_option(field: str) -> str:
    """Return how to write an option of a job that was given as a field of its payload, and nothing for other fields."""
    option = f"{field}=…" if field in JobOptions.__optional_keys__ else ours(field)
    return f"; for the option write .options({option}).enqueue(…)" if option else ""


def defaults(type: str, **options: Unpack[HandlerOptions]) -> Defaults:
    """Check the options of `@app.job` and return them as defaults. `BadHandler` names an option that does not exist."""
    known = HandlerOptions.__optional_keys__
    for unknown in options.keys() - known:
        raise BadHandler(type, f"{unknown} is not an option of @app.job{instead_of(unknown, known)}")
    jitter, process, memory = options.get("jitter", 0.0), options.get("process", False), options.get("memory")
    if not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise Invalid("jitter", "must be a number from 0 to 1")
    if memory is not None and not process:
        raise Invalid("memory", "limits only process handlers; add process=True")
    on_cancel = options.get("webhook_on_cancel")
    return Defaults(
        queue=None if (queue := options.get("queue")) is None else check_queue(queue),
        priority=None if (priority := options.get("priority")) is None else check_priority(priority),
        max_retries=None if (retries := options.get("max_retries")) is None else check_retries(retries),
        retry_delay=None if (delay := options.get("retry_delay")) is None else check_retry_delay(delay),
        timeout=check_timeout(options.get("timeout", DEFAULT_TIMEOUT)),
        retry_cap=span(options.get("retry_cap", CAP), "retry_cap"),
        jitter=jitter,
        permanent=_permanent(type, options.get("permanent", ())),
        process=check_flag(process, "process"),
        memory=None if memory is None else size(memory, "memory"),
        webhook_url=None if (url := options.get("webhook_url")) is None else check_webhook(url),
        webhook_on_cancel=None if on_cancel is None else check_flag(on_cancel, "webhook_on_cancel"),
    )


def _permanent(type: str, given: Permanent) -> tuple[builtins.type[BaseException], ...]:
    classes = tuple(given) if isinstance(given, tuple | list) else (given,)
    for one in classes:
        if not isinstance(one, builtins.type) or not issubclass(one, BaseException):
            raise BadHandler(type, f"permanent takes exception classes, such as (LookupError,), not {one!r}")
    return classes


def _signature(type: str, function: Callable[..., Any]) -> tuple[str | None, PayloadReader]:
    """Return the name of the context parameter, and what reads payloads for the other parameters."""
    context_name, is_open = None, False
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    hints = _hints(type, function)
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise BadHandler(type, f"parameter {parameter.name!r} must be usable as a keyword: payloads have names")
        elif hint is Context or (parameter.name == "ctx" and hint is Any):
            context_name = parameter.name
        else:
            fields[parameter.name] = hint
            if parameter.default is not parameter.empty:
                defaults[parameter.name] = parameter.default
    try:
        return context_name, payload_reader(fields, defaults, is_open=is_open)
    except TypeError as problem:
        raise BadHandler(type, str(problem)) from problem


def _hints(type: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as problem:
        raise BadHandler(type, f"its annotations cannot be read: {problem}") from problem


def _result_reader(function: Callable[..., Any]) -> Callable[[bytes], Any] | None:
    """Return what reads a stored result as the annotated return type; None if there is none, or JSON has no such type."""
    try:
        hint = typing.get_type_hints(function, include_extras=True).get("return", Any)
        return None if hint is Any else result_reader(hint)
    except Exception:
        return None
