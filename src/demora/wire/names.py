"""The names of arguments over HTTP, both ways. A few have another name there; all others only become camelCase."""

import re

RENAMED = {"at": "scheduled_at", "key": "idempotency_key"}  # arguments of the client that a request names otherwise
_AFTER, _CURSOR = "after", "cursor"  # where a list goes on; inside a body, `after` is the span of an outcome

_NAME = re.compile(r"\w+")


def as_field(argument: str) -> str:
    """Return the field for an argument: `jobs[2].scheduledAt` for `jobs[2].at`. Names inside a payload belong to the caller
    and stay."""
    own, payload, inside = argument.partition("payload")
    sent = _CURSOR if own == _AFTER else _NAME.sub(lambda name: _camel(RENAMED.get(name[0], name[0])), own)
    return sent + payload + inside


def as_argument(field: str) -> str:
    """Return the argument for a field: the opposite of `as_field`."""
    own, payload, inside = field.partition("payload")
    return _NAME.sub(lambda name: _ARGUMENTS.get(name[0]) or _snake(name[0]), own) + payload + inside


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


_ARGUMENTS = {_camel(field): argument for argument, field in RENAMED.items()} | {_CURSOR: _AFTER}
