"""Access to the HTTP service: API keys and their scopes, the limits of a key, rates of requests, and callers' addresses."""

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv6Address, ip_address, ip_network

import msgspec

from ..errors import Invalid, LimitReached, NotAllowedForKey
from .job import NewJob
from .outbound.targets import Address, Network
from .request import check_name
from .spans import MILLISECOND, ZERO, span

MOST_PATTERNS = 100  # of queues, and of types
MOST_LIMIT = 1_000_000_000
USE_NOTED_EVERY = timedelta(minutes=1)
UNKNOWN = "unknown"  # the address of a caller without one, as on a Unix socket
MOST_HOPS = 20  # proxies in a row that are read

_PREFIX = "dmr"  # lets people and scanners of secrets recognise a key that leaked
_ID = "[a-z0-9]{12}"
_KEY = re.compile(f"{_PREFIX}_({_ID})_[A-Za-z0-9]{{43}}")
_NO_DIGEST = bytes(32)
_NAMESPACE = re.compile("[A-Za-z0-9._-]{1,64}")
_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_TYPE_CHARACTERS = _NAME_CHARACTERS | frozenset(":/")
_FORWARDED_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*(?:"([^"]*)"|([^;\s]*))', re.IGNORECASE)
_WITH_PORT = re.compile(r"\[([^\]]*)\](?::\d{1,5})?|(\d{1,3}(?:\.\d{1,3}){3}):\d{1,5}")

# The limits of a key


class NameKind(StrEnum):
    """The kinds of names whose number is limited."""

    QUEUE = "queue"
    TYPE = "type"


class KeyLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of one key. None stands for the limit of the settings, 0 for no limit. Without patterns every name is
    allowed."""

    max_queues: int | None = None
    max_types: int | None = None
    max_waiting: int | None = None
    rate: int | None = None  # requests a second
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    def over(self, usual: "KeyLimits") -> "KeyLimits":
        """Return these limits, with the usual ones where this key has none of its own."""
        return KeyLimits(
            max_queues=usual.max_queues if self.max_queues is None else self.max_queues,
            max_types=usual.max_types if self.max_types is None else self.max_types,
            max_waiting=usual.max_waiting if self.max_waiting is None else self.max_waiting,
            rate=usual.rate if self.rate is None else self.rate,
            queues=self.queues,
            types=self.types,
        )


def check_limits(
    *,
    max_queues: int | None = None,
    max_types: int | None = None,
    max_waiting: int | None = None,
    rate: int | None = None,
    queues: Iterable[str] = (),
    types: Iterable[str] = (),
) -> KeyLimits:
    """Return the checked limits. `Invalid` names the field and says what would be right."""
    return KeyLimits(
        max_queues=_limit(max_queues, "max_queues"),
        max_types=_limit(max_types, "max_types"),
        max_waiting=_limit(max_waiting, "max_waiting"),
        rate=_limit(rate, "rate"),
        queues=_patterns(queues, "queues", _NAME_CHARACTERS, 64),
        types=_patterns(types, "types", _TYPE_CHARACTERS, 128),
    )


def matches(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern: a whole name, or one with a single `*` that stands for any number of characters."""
    before, star, after = pattern.partition("*")
    if not star:
        return name == pattern
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after)


def check_allowed(limits: KeyLimits, jobs: Sequence[NewJob]) -> None:
    """Raise `NotAllowedForKey` for the first job with a queue or type that the key may not use."""
    for n, job in enumerate(jobs):
        place = f"jobs[{n}]." if len(jobs) > 1 else ""
        if not _fits_any(limits.queues, job.queue):
            raise NotAllowedForKey(f"{place}queue", job.queue, limits.queues)
        if not _fits_any(limits.types, job.type):
            raise NotAllowedForKey(f"{place}type", job.type, limits.types)


def check_names(limits: KeyLimits, queues: Sequence[str] | None, types: Sequence[str]) -> None:
    """Raise `NotAllowedForKey` for the first queue or type of a worker that the key may not use. None means all queues."""
    if queues is None and limits.queues:
        raise NotAllowedForKey("queues", "all queues", limits.queues)
    for queue in queues or ():
        if not _fits_any(limits.queues, queue):
            raise NotAllowedForKey("queues", queue, limits.queues)
    for type in types:
        if not _fits_any(limits.types, type):
            raise NotAllowedForKey("types", type, limits.types)


def too_many_names(kind: NameKind, limits: KeyLimits) -> LimitReached:
    """Return the error for a key that has used up its names of a kind."""
    most = (limits.max_queues if kind is NameKind.QUEUE else limits.max_types) or 0
    return LimitReached(kind.value, most)


def _fits_any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(matches(pattern, name) for pattern in patterns)


def _limit(value: int | None, field: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_LIMIT):
        raise Invalid(field, f"must be a whole number from 0, which means no limit, to {MOST_LIMIT}")
    return value


def _patterns(given: Iterable[str], field: str, characters: frozenset[str], longest: int) -> tuple[str, ...]:
    patterns = tuple(dict.fromkeys(given))
    if len(patterns) > MOST_PATTERNS:
        raise Invalid(field, f"at most {MOST_PATTERNS} patterns are allowed")
    for pattern in patterns:
        one_star = isinstance(pattern, str) and pattern.count("*") <= 1
        if not one_star or not 1 <= len(pattern) <= longest or not frozenset(pattern) <= characters | {"*"}:
            raise Invalid(
                field, "a pattern is a name with at most one *, which stands for any characters: mail, mail.*, *.eu"
            )
    return patterns


# API keys and their scopes


class Scope(StrEnum):
    """What a key allows. `operate` includes `read`, since its answers show jobs; `admin` includes all."""

    SUBMIT = "submit"  # add jobs
    READ = "read"  # see jobs, queues and workers
    OPERATE = "operate"  # read; cancel, retry, reschedule and delete jobs, pause and resume queues
    WORK = "work"  # run jobs as a remote worker
    ADMIN = "admin"  # all of these, and change the settings of queues


_INCLUDES = {
    Scope.SUBMIT: frozenset({Scope.SUBMIT}),
    Scope.READ: frozenset({Scope.READ}),
    Scope.OPERATE: frozenset({Scope.OPERATE, Scope.READ}),
    Scope.WORK: frozenset({Scope.WORK}),
    Scope.ADMIN: frozenset(Scope),
}


def included(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return these scopes and all that they include."""
    return frozenset(one for scope in scopes for one in _INCLUDES[scope])


class NewKey(msgspec.Struct, frozen=True):
    """A checked key that has not been stored."""

    id: str
    digest: bytes
    name: str
    scopes: tuple[Scope, ...]
    expires_in: timedelta | None = None
    namespace: str = ""
    limits: KeyLimits = KeyLimits()


class NewSecret(msgspec.Struct, frozen=True):
    """A new secret of a key. The old one is accepted for the `overlap`. The key keeps its expiry unless `expires_in` gives a
    new one."""

    id: str
    digest: bytes
    overlap: timedelta | None = None
    expires_in: timedelta | None = None


class ApiKey(msgspec.Struct, frozen=True):
    """A key as the store keeps it: a digest, never the text.

    Its namespace holds the unique keys and idempotency keys of the jobs that it submits. Python code and the command line
    use the empty namespace. After a rotation the secret of `former_digest` is accepted too, until `former_until`.
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
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and not self._expired(now)

    def state(self, now: datetime) -> str:
        """Return `in force`, `revoked` or `expired`, for people."""
        return "revoked" if self.revoked_at is not None else "expired" if self._expired(now) else "in force"

    def allows(self, scope: Scope) -> bool:
        return any(scope in _INCLUDES[given] for given in self.scopes)

    def use_to_be_noted(self, now: datetime) -> bool:
        """Whether the last recorded use is so long ago that this use should be recorded."""
        return self.last_used_at is None or now - self.last_used_at >= USE_NOTED_EVERY

    def former(self, now: datetime) -> bytes | None:
        """Return the digest of the former secret while that is accepted."""
        return None if self.former_until is None or now >= self.former_until else self.former_digest

    def _expired(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class Presented(msgspec.Struct, frozen=True):
    """A key as a caller presents it: the id in its text, and the digest of the text."""

    id: str
    digest: bytes


def is_key_id(text: str) -> bool:
    return re.fullmatch(_ID, text) is not None


def key_text(id: str, secret: str) -> str:
    return f"{_PREFIX}_{id}_{secret}"


def present(text: str) -> Presented | None:
    """Return the id and the digest of the text of a key; None if it does not have the form of a key."""
    form = _KEY.fullmatch(text)
    return None if form is None else Presented(form[1], _digest(text))


def has_secret(key: ApiKey | None, presented: Presented) -> bool:
    """Whether this is the current or the former secret of the key, in force or not."""
    digests = (_NO_DIGEST, _NO_DIGEST) if key is None else (key.digest, key.former_digest or _NO_DIGEST)
    return sum(hmac.compare_digest(digest, presented.digest) for digest in digests) > 0


def accepts(key: ApiKey | None, presented: Presented, now: datetime) -> bool:
    """Whether the presented secret is right and the key in force. Takes the same time for a wrong secret and for no key."""
    same = hmac.compare_digest(_NO_DIGEST if key is None else key.digest, presented.digest)
    same |= hmac.compare_digest((None if key is None else key.former(now)) or _NO_DIGEST, presented.digest)
    return key is not None and same and key.in_force(now)


def accepted_for(key: ApiKey | None, presented: Presented, now: datetime) -> timedelta:
    """Return for how long the presented secret is accepted at most, if the key stays in force and is not rotated."""
    if key is None or not accepts(key, presented, now):
        return ZERO
    current = hmac.compare_digest(key.digest, presented.digest)
    return timedelta.max if current or key.former_until is None else key.former_until - now


def make_key(
    text: str,
    name: str,
    scopes: Iterable[Scope | str],
    expires_in: timedelta | str | None = None,
    *,
    namespace: str | None = None,
    limits: KeyLimits | None = None,
) -> NewKey:
    """Return a checked key to be stored. `Invalid` names the field and says what would be right.

    Unless a namespace is given, a key that may only submit gets its own, named by its id, so that it shares no unique key
    and no idempotency key with other callers. Any other key uses the empty one.
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
    """Return a checked new secret for the key whose id is in the text."""
    presented = _presented(text)
    both = None if overlap is None else span(overlap, "overlap")
    return NewSecret(presented.id, presented.digest, both, _life(expires_in))


def check_namespace(namespace: str) -> str:
    """Return the namespace if its name is allowed. The empty one is shared with Python code and the command line."""
    if not isinstance(namespace, str) or (namespace and not _NAMESPACE.fullmatch(namespace)):
        raise Invalid("namespace", "must be 1 to 64 letters, digits, dots, dashes and underscores, or empty to be shared")
    return namespace


def check_scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """Return the scopes, each once, in the order of `Scope`."""
    given = frozenset(scopes)
    if not given or not given <= frozenset(Scope):
        raise Invalid("scopes", f"must be one or more of {', '.join(Scope)}")
    return tuple(scope for scope in Scope if scope in given)


def _presented(text: str) -> Presented:
    presented = present(text)
    if presented is None:
        raise Invalid("key", "does not have the form of a key")
    return presented


def _life(expires_in: timedelta | str | None) -> timedelta | None:
    life = None if expires_in is None else span(expires_in, "expires_in")
    if life is not None and life < MILLISECOND:
        raise Invalid("expires_in", "must be greater than zero")
    return life


def _digest(text: str) -> bytes:
    # A fast hash is enough: passwords need a slow one because they can be guessed, but 256 random bits cannot, and every
    # request would pay for a slow one.
    return hashlib.sha256(text.encode()).digest()


# Rates of requests, by token buckets


class Bucket(msgspec.Struct, frozen=True):
    """The tokens that a caller had at a time, in seconds of a monotonic clock."""

    tokens: float
    at: float


class RequestRate(msgspec.Struct, frozen=True):
    """How many tokens a bucket gains in a second, and how many it holds. A rate of 0 means no limit."""

    per_second: float
    burst: float


def level(bucket: Bucket, rate: RequestRate, now: float) -> float:
    """Return the tokens in a bucket now."""
    return min(rate.burst, bucket.tokens + max(0.0, now - bucket.at) * rate.per_second)


class RateLimiter:
    """Limits the requests of each caller. It remembers the buckets of the `most` callers that called last.

    A caller that it does not remember has a full bucket. With more callers than buckets the limit is too generous for rare
    callers, and never too strict.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: Hashable, rate: RequestRate, now: float) -> float:
        """Take a token. Returns 0.0 if there was one, otherwise the seconds until there is one."""
        if rate.per_second <= 0:
            return 0.0
        known = self._buckets.get(caller)
        tokens = rate.burst if known is None else level(known, rate, now)
        if tokens < 1.0:
            self._buckets.move_to_end(caller)
            return (1.0 - tokens) / rate.per_second
        self._buckets[caller] = Bucket(tokens - 1.0, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0


# Callers' addresses


def caller_of(peer: str | None, x_forwarded_for: Sequence[str], forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Return the address by which a caller's requests are counted: IPv4, the /64 of an IPv6 address, or `UNKNOWN`.

    The address is that of the peer. If the peer is a trusted proxy, the headers name it. A proxy appends to one of the two
    headers and passes the other on as the caller wrote it, so where both are present, neither counts.
    """
    address = _read(peer or "")
    if address is None:
        return UNKNOWN
    if _is_trusted(address, trusted) and not (x_forwarded_for and forwarded):
        address = _behind(address, _hops(x_forwarded_for, forwarded), trusted)
    return _counted(address)


def _behind(proxy: Address, hops: Sequence[str], trusted: Sequence[Network]) -> Address:
    """Return the last address that is not a trusted proxy; if one cannot be read, the proxy that appended it."""
    for hop in hops[: -MOST_HOPS - 1 : -1]:
        named = _read(hop)
        if named is None:
            return proxy
        proxy = named
        if not _is_trusted(named, trusted):
            return named
    return proxy


def _hops(x_forwarded_for: Sequence[str], forwarded: Sequence[str]) -> list[str]:
    if not forwarded:
        return [hop for line in x_forwarded_for for hop in line.split(",")]
    found = [_FORWARDED_FOR.search(hop) for line in forwarded for hop in line.split(",")]
    return ["" if one is None else one[1] or one[2] or "" for one in found]


def _read(text: str) -> Address | None:
    """Return the address in a text, with or without a port. An IPv6 address that maps an IPv4 address becomes that."""
    text = text.strip()
    with_port = _WITH_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port[1] or with_port[2] or ""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted if network.version == address.version)


def _counted(address: Address) -> str:
    """Return the address or network that stands for a caller. A household or a server has a whole /64 of IPv6, which counts
    as one."""
    if address.version == 4:
        return str(address)
    return str(ip_network((int(address) >> 64 << 64, 64)))
