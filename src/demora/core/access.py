"""Who may do what: API keys, their scopes, and whether a key lets a request in."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from ..errors import Invalid
from .request import check_name
from .spans import MILLISECOND, span

USE_NOTED_EVERY = timedelta(minutes=1)

_PREFIX = "dmr"  # makes a key that leaked recognisable, for people and for scanners of secrets
_ID = "[a-z0-9]{12}"
_KEY = re.compile(f"{_PREFIX}_({_ID})_[A-Za-z0-9]{{43}}")
_NOBODY = bytes(32)


class Scope(StrEnum):
    """What a key is for. Operating shows the jobs it is about, so it includes reading; admin includes all."""

    SUBMIT = "submit"  # add jobs
    READ = "read"  # look at jobs, queues and workers
    OPERATE = "operate"  # read; cancel, retry, reschedule and delete jobs, pause and resume queues
    ADMIN = "admin"  # all of that, and change the settings of queues


_INCLUDES = {
    Scope.SUBMIT: frozenset({Scope.SUBMIT}),
    Scope.READ: frozenset({Scope.READ}),
    Scope.OPERATE: frozenset({Scope.OPERATE, Scope.READ}),
    Scope.ADMIN: frozenset(Scope),
}


class NewKey(msgspec.Struct, frozen=True):
    """A checked key that is not stored yet."""

    id: str
    digest: bytes
    name: str
    scopes: tuple[Scope, ...]
    expires_in: timedelta | None = None


class ApiKey(msgspec.Struct, frozen=True):
    """A key as it is stored: never its text, only a digest of it."""

    id: str
    digest: bytes
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    def in_force(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and not self._expired(now)

    def standing(self, now: datetime) -> str:
        """For people: `in force`, `revoked` or `expired`."""
        return "revoked" if self.revoked_at is not None else "expired" if self._expired(now) else "in force"

    def allows(self, scope: Scope) -> bool:
        return any(scope in _INCLUDES[given] for given in self.scopes)

    def use_to_be_noted(self, now: datetime) -> bool:
        """Whether its last noted use is so long ago that this one should be noted."""
        return self.last_used_at is None or now - self.last_used_at >= USE_NOTED_EVERY

    def _expired(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class Presented(msgspec.Struct, frozen=True):
    """A key as somebody presents it: which one it claims to be, and the digest of its text."""

    id: str
    digest: bytes


def is_key_id(text: str) -> bool:
    return re.fullmatch(_ID, text) is not None


def key_text(id: str, secret: str) -> str:
    return f"{_PREFIX}_{id}_{secret}"


def present(text: str) -> Presented | None:
    """What the text of a key claims; None if it has not the form of a key."""
    form = _KEY.fullmatch(text)
    return None if form is None else Presented(form[1], _digest(text))


def accepts(key: ApiKey | None, presented: Presented, now: datetime) -> bool:
    """Whether this is the very key, and in force. Takes as long for a wrong secret as for a right one, or for no key."""
    same = hmac.compare_digest(_NOBODY if key is None else key.digest, presented.digest)
    return key is not None and same and key.in_force(now)


def make_key(text: str, name: str, scopes: Iterable[Scope | str], expires_in: timedelta | str | None = None) -> NewKey:
    """A key as it will be stored, or `Invalid` that names the field and says what would be right."""
    presented = present(text)
    if presented is None:
        raise Invalid("key", "has not the form of a key")
    life = None if expires_in is None else span(expires_in, "expires_in")
    if life is not None and life < MILLISECOND:
        raise Invalid("expires_in", "must be longer than nothing")
    return NewKey(presented.id, presented.digest, check_name(name), check_scopes(scopes), life)


def check_scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """The scopes, each once, in the order of `Scope`."""
    given = frozenset(scopes)
    if not given or not given <= frozenset(Scope):
        raise Invalid("scopes", f"must be one or more of {', '.join(Scope)}")
    return tuple(scope for scope in Scope if scope in given)


def _digest(text: str) -> bytes:
    # A plain hash is right here: passwords need a slow one because they can be guessed, 256 random bits cannot, and every
    # request would pay for it.
    return hashlib.sha256(text.encode()).digest()
