"""Who may do what: API keys, their scopes, and whether a key lets a request in."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from ..errors import Invalid
from .keylimits import KeyLimits
from .request import check_name
from .spans import MILLISECOND, span

USE_NOTED_EVERY = timedelta(minutes=1)

_PREFIX = "dmr"  # makes a key that leaked recognisable, for people and for scanners of secrets
_ID = "[a-z0-9]{12}"
_KEY = re.compile(f"{_PREFIX}_({_ID})_[A-Za-z0-9]{{43}}")
_NAMESPACE = re.compile("[A-Za-z0-9._-]{1,64}")
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
    namespace: str = ""
    limits: KeyLimits = KeyLimits()


class NewSecret(msgspec.Struct, frozen=True):
    """A new secret of a key. The one before is accepted for the `overlap`, and the key ends when it was to end, unless
    `expires_in` says otherwise."""

    id: str
    digest: bytes
    overlap: timedelta | None = None
    expires_in: timedelta | None = None


class ApiKey(msgspec.Struct, frozen=True):
    """A key as it is stored: never its text, only a digest of it.

    Its namespace holds the unique keys and idempotency keys of the jobs that it submits; Python code and the command line
    use the empty one. While a secret is being replaced, `former_digest` is that of the one before, until `former_until`.
    """

    id: str
    digest: bytes
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    namespace: str = ""
    limits: KeyLimits = KeyLimits()
    former_digest: bytes | None = None
    former_until: datetime | None = None

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

    def former(self, now: datetime) -> bytes | None:
        """The digest of the secret before this one, while that is accepted."""
        return None if self.former_until is None or now >= self.former_until else self.former_digest

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


def has_secret(key: ApiKey | None, presented: Presented) -> bool:
    """Whether this is a secret that the key has or had before, in force or not."""
    digests = (_NOBODY, _NOBODY) if key is None else (key.digest, key.former_digest or _NOBODY)
    return sum(hmac.compare_digest(digest, presented.digest) for digest in digests) > 0


def accepts(key: ApiKey | None, presented: Presented, now: datetime) -> bool:
    """Whether this is the very key, and in force. Takes as long for a wrong secret as for a right one, or for no key."""
    same = hmac.compare_digest(_NOBODY if key is None else key.digest, presented.digest)
    same |= hmac.compare_digest((None if key is None else key.former(now)) or _NOBODY, presented.digest)
    return key is not None and same and key.in_force(now)


def make_key(
    text: str,
    name: str,
    scopes: Iterable[Scope | str],
    expires_in: timedelta | str | None = None,
    *,
    namespace: str | None = None,
    limits: KeyLimits | None = None,
) -> NewKey:
    """A key as it will be stored, or `Invalid` that names the field and says what would be right.

    Without a namespace, a key that may only submit has one of its own, named by its id: it shares no unique key and no
    idempotency key with other callers. Any other key shares the empty one.
    """
    presented, checked = _presented(text), check_scopes(scopes)
    own = presented.id if checked == (Scope.SUBMIT,) else ""
    return NewKey(
        presented.id,
        presented.digest,
        check_name(name),
        checked,
        _life(expires_in),
        own if namespace is None else check_namespace(namespace),
        limits or KeyLimits(),
    )


def make_secret(
    text: str, *, overlap: timedelta | str | None = None, expires_in: timedelta | str | None = None
) -> NewSecret:
    """A new secret for the key whose id the text has."""
    presented = _presented(text)
    both = None if overlap is None else span(overlap, "overlap")
    return NewSecret(presented.id, presented.digest, both, _life(expires_in))


def check_namespace(namespace: str) -> str:
    """The namespace; the empty one is shared with Python code and the command line."""
    if not isinstance(namespace, str) or (namespace and not _NAMESPACE.fullmatch(namespace)):
        raise Invalid("namespace", "must be 1 to 64 letters, digits, dots, dashes and underscores, or empty to be shared")
    return namespace


def check_scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """The scopes, each once, in the order of `Scope`."""
    given = frozenset(scopes)
    if not given or not given <= frozenset(Scope):
        raise Invalid("scopes", f"must be one or more of {', '.join(Scope)}")
    return tuple(scope for scope in Scope if scope in given)


def _presented(text: str) -> Presented:
    presented = present(text)
    if presented is None:
        raise Invalid("key", "has not the form of a key")
    return presented


def _life(expires_in: timedelta | str | None) -> timedelta | None:
    life = None if expires_in is None else span(expires_in, "expires_in")
    if life is not None and life < MILLISECOND:
        raise Invalid("expires_in", "must be longer than nothing")
    return life


def _digest(text: str) -> bytes:
    # A plain hash is right here: passwords need a slow one because they can be guessed, 256 random bits cannot, and every
    # request would pay for it.
    return hashlib.sha256(text.encode()).digest()
