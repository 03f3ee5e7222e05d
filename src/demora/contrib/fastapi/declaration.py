"""Reads the declaration of an endpoint that runs later: what to check and run in the request, and what to run in the worker.

The parameters of the request are checked in the request, also those of dependencies. The dependencies themselves run in the
worker, except those that are marked `AtRequest`.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin

from fastapi import Depends, Request, Response, params
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant, get_typed_return_annotation, get_typed_signature
from fastapi.security.base import SecurityBase
from pydantic import AliasChoices, BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from ...errors import BadHandler

REQUEST, CHECK, AT_REQUEST = "demora_request", "demora_check", "demora_at_request_"
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
AnyFunction = Callable[..., Any]  # an endpoint or a dependency
_MARK = "mark it AtRequest: Annotated[…, Depends(…), AtRequest]"


class AtRequest:
    """Marks a dependency that runs in the request: `Annotated[User, Depends(current_user), AtRequest]`.

    Its value is stored with the job as JSON. The worker gives it to the endpoint, read as the annotated type.
    """


class StoredValue(NamedTuple):
    """The value of a dependency that ran in the request."""

    key: str
    call: AnyFunction
    type: TypeAdapter[Any]


class Declaration:
    """What an endpoint declares. `BadHandler` if it needs something that a worker does not have.

    It may declare forms and files if there are `uploads`, where files are kept until the worker reads them.
    """

    def __init__(self, job_type: str, endpoint: AnyFunction, check: AnyFunction | None, *, uploads: bool = False) -> None:
        self._job_type, self.endpoint, self.check, self._uploads = job_type, endpoint, check, uploads
        self.headers: set[str] = set()
        self.has_body = False  # whether the body belongs to the request that the worker sees
        self.takes_request = False  # so that it may read the body byte by byte
        self._stored: dict[AnyFunction, StoredValue] = {}
        self._shadows: dict[AnyFunction, AnyFunction] = {}
        self._depends: dict[AnyFunction, Any] = {}
        self._refuse_streams()
        own = self._in_request(endpoint)
        self.signature = inspect.Signature([*own, *self._further()])

    @property
    def stored(self) -> tuple[StoredValue, ...]:
        """The dependencies that run in the request."""
        return tuple(self._stored.values())

    def _further(self) -> Iterator[inspect.Parameter]:
        """Yield what only the request needs: itself, the check, and the dependencies that run there."""
        yield _named(REQUEST, Request)
        if self.check is not None:
            yield _named(CHECK, Annotated[Any, Depends(self.check)])
        for value in self._stored.values():
            yield _named(AT_REQUEST + value.key, self._depends[value.call])

    def _in_request(self, call: AnyFunction) -> list[inspect.Parameter]:
        """Return the parameters of a function as the request checks them: with a shadow for each of its dependencies."""
        own = get_dependant(path="/", call=call)
        self._refuse(own, call)
        self.headers |= _header_names(own)
        self.takes_request |= own.request_param_name is not None
        self.has_body |= bool(own.body_params) or self.takes_request
        depends = {sub.name: sub for sub in own.dependencies}
        found = []
        for parameter in get_typed_signature(call).parameters.values():
            sub = depends.get(parameter.name)
            if sub is None or sub.call is None:
                found.append(_named(parameter.name, parameter.annotation, parameter.default))
            elif _is_marked(parameter.annotation):
                self._store(parameter.name, parameter.annotation, sub.call)
            else:
                found.append(_named(parameter.name, Annotated[None, Depends(self._shadow(sub.call))]))
        return found

    def _shadow(self, call: AnyFunction) -> AnyFunction:
        """Return a dependency with the parameters of another one, which FastAPI checks, and which does nothing."""
        if call not in self._shadows:
            parameters = self._in_request(call)

            async def shadow(**checked: Any) -> None: ...

            shadow.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            self._shadows[call] = shadow
        return self._shadows[call]

    def _store(self, name: str, annotation: Any, call: AnyFunction) -> None:
        if call in self._stored:
            return
        taken = {value.key for value in self._stored.values()}
        key = next(key for n in range(1, len(taken) + 2) if (key := name if n == 1 else f"{name}_{n}") not in taken)
        try:
            self._stored[call] = StoredValue(key, call, TypeAdapter(get_args(annotation)[0]))
        except PydanticUserError as problem:
            self._raise(f"the value of {_name(call)} cannot be stored as JSON: {problem.message.partition('. ')[0]}")
        self._depends[call] = annotation

    def _refuse(self, own: Dependant, call: AnyFunction) -> None:
        """Refuse what cannot be stored, or is not there when the worker runs."""
        who = "it" if call is self.endpoint else _name(call)
        secrets = sorted(_header_names(own) & SECRET_HEADERS)
        if isinstance(call, SecurityBase) or own.cookie_params or secrets:
            self._raise(f"{who} reads {' and '.join(secrets) or 'credentials'}, which are never stored; {_MARK}")
        if own.response_param_name or own.background_tasks_param_name:
            self._raise(f"{who} takes a Response or BackgroundTasks, but its request is answered before it runs")
        if own.websocket_param_name:
            self._raise(f"{who} takes a WebSocket, which ends before it runs")
        if not self._uploads and any(isinstance(field.field_info, params.Form) for field in own.body_params):
            self._raise(f"{who} takes a form or a file; say where to keep files: later(…, files=UploadFolder(…))")
        if any(model.model_config.get("extra") == "allow" for model in _header_models(own)):
            self._raise(f"{who} takes a model of all headers, but only declared headers are stored")

    def _refuse_streams(self) -> None:
        if inspect.isgeneratorfunction(self.endpoint) or inspect.isasyncgenfunction(self.endpoint):
            self._raise("it yields, but a job has one result")
        returned = get_typed_return_annotation(self.endpoint)
        if isinstance(returned, type) and issubclass(returned, Response):
            self._raise("it returns a Response, but the result of a job is JSON: return the value")

    def _raise(self, reason: str) -> NoReturn:
        raise BadHandler(self._job_type, reason)


def _named(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _is_marked(annotation: Any) -> bool:
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return any(mark is AtRequest or isinstance(mark, AtRequest) for mark in marks)


def _header_names(own: Dependant) -> set[str]:
    """Return the names of the headers that a function reads, in lower case, also those of the fields of a model."""
    names = {name for field in own.header_params for name in _names_of(field.field_info, field.alias)}
    for model in _header_models(own):
        names |= {one for name, field in model.model_fields.items() for one in _names_of(field, name)}
    return {name.lower() for name in names} | {name.lower().replace("_", "-") for name in names}


def _names_of(field: FieldInfo, usual: str) -> set[str]:
    """Return all names under which a value of this field may be sent."""
    given = field.validation_alias
    choices = given.choices if isinstance(given, AliasChoices) else [given]
    return {choice for choice in (*choices, field.alias) if isinstance(choice, str)} or {usual}


def _header_models(own: Dependant) -> Iterator[type[BaseModel]]:
    """Yield the models whose fields are headers."""
    for field in own.header_params:
        annotation: Any = field.field_info.annotation
        while get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        for choice in (annotation, *get_args(annotation)):
            if isinstance(choice, type) and issubclass(choice, BaseModel):
                yield choice


def _name(call: AnyFunction) -> str:
    return f"its dependency {getattr(call, '__name__', type(call).__name__)}"
