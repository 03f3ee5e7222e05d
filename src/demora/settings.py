"""Settings: arguments first, then `DEMORA_…` variables, then a TOML file, then defaults.

They are read once at the edge (by `Demora`, the service and the commands), and passed on as values.
"""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import msgspec

from .core.access import MOST_LIMIT, KeyLimits
from .core.job import DEFAULT_LEASE
from .core.outbound.targets import Network, Policy, read_networks
from .core.outbound.webhook import Secret, read_secret
from .core.pace import EVERY_QUEUE, Pace, PaceRequest, check_paced, read_pace, say_request
from .core.request import LONGEST_TIMEOUT
from .core.retention import Keep, Retention, keep
from .core.spans import say, span
from .engines.options import PostgresOptions, driver_url
from .errors import BadSetting, Invalid
from .line import HORIZON
from .line.address import redis_dsn

DEFAULT_FILE, FILE_VARIABLE = "demora.toml", "DEMORA_CONFIG"
_PREFIX = "DEMORA_"
_OWN = {"DEMORA_CRASH", "DEMORA_LIFELINE", "DEMORA_RELOADED"}  # set by tests, and by a supervisor or reloader
LEAST_IN_FLIGHT = 48 * 1024 * 1024  # bytes
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
DASHBOARD = ("on", "off")
LOG_ERRORS = ("text", "class")
BUILTIN_HANDLERS = ("demo", "http.request")  # the names that the setting takes besides all and none


class Settings(msgspec.Struct, frozen=True):
    """All settings. The variable of a setting is `DEMORA_` and its name in capitals."""

    app: str | None = None
    database_url: str = "sqlite:///demora.db"
    database_schema: str = "demora"
    database_connections: int = 8
    database_timeout: timedelta = timedelta(seconds=30)
    database_pooler: bool = False
    database_listen_url: str | None = None
    database_notify: bool = True
    redis_url: str | None = None
    api_key: str | None = None
    line_horizon: timedelta = HORIZON
    host: str = "127.0.0.1"
    port: int = 8080
    lease: timedelta = DEFAULT_LEASE
    grace: timedelta = timedelta(seconds=8)
    concurrency: int = 20
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    known_types_only: bool = False
    builtin_handlers: tuple[str, ...] | None = None
    max_timeout: timedelta = timedelta(days=1)
    allowed_hosts: tuple[str, ...] = ()
    dashboard: str = "on"
    root_path: str = ""
    http_connections: int = 1000
    http_connections_per_address: int | None = None
    trusted_proxies: tuple[str, ...] = ()
    failed_auth_rate: int = 10
    key_rate: int = 1000
    key_max_queues: int = 10_000
    key_max_types: int = 1000
    key_max_waiting: int = 0
    in_flight_bytes: int = 256 * 1024 * 1024
    audit: bool = False
    release: str | None = None
    log_format: str = "text"
    log_level: str = "INFO"
    log_errors: str = "text"
    keep_completed: Keep = Keep(timedelta(days=7))
    keep_cancelled: Keep = Keep(timedelta(days=7))
    keep_failed: Keep = Keep(timedelta(days=90))
    outbound_allow: tuple[str, ...] = ()
    outbound_http: bool = False
    outbound_timeout: timedelta = timedelta(seconds=15)
    outbound_per_host: int = 4
    webhook_secret: str | None = None
    usual_pace: Pace = Pace()
    pace: dict[str, PaceRequest | None] = {}

    @property
    def retention(self) -> Retention:
        """How long ended jobs are kept in queues without a retention of their own."""
        return Retention(self.keep_completed, self.keep_cancelled, self.keep_failed)

    @property
    def key_limits(self) -> KeyLimits:
        """The limits of API keys without limits of their own."""
        return KeyLimits(self.key_max_queues, self.key_max_types, self.key_max_waiting, self.key_rate)

    @property
    def outbound(self) -> Policy:
        """Which servers demora may call for a job, besides public servers over https."""
        return Policy(read_networks(self.outbound_allow, "outbound_allow"), self.outbound_http)

    @property
    def proxies(self) -> tuple[Network, ...]:
        """The networks of reverse proxies: their connections are not counted by address, their headers name the caller."""
        return read_networks(self.trusted_proxies, "trusted_proxies")

    @property
    def webhook_secrets(self) -> tuple[Secret, ...]:
        """The webhook secrets from the settings; more than one while one replaces another."""
        return tuple(read_secret(text, "webhook_secret") for text in (self.webhook_secret or "").replace(",", " ").split())

    @property
    def asked_paces(self) -> str:
        """The paces that the settings ask for, as one text: `* gap=3m burst=5; mail off`."""
        asked = [(queue, "off" if request is None else say_request(request)) for queue, request in self.pace.items()]
        return "; ".join(f"{queue} {text}" for queue, text in sorted(asked))

    @property
    def postgres(self) -> PostgresOptions:
        """The options of a PostgreSQL database."""
        return PostgresOptions(
            schema=self.database_schema,
            connections=self.database_connections,
            timeout=self.database_timeout,
            pooler=self.database_pooler,
            listen_url=self.database_listen_url,
            notify=self.database_notify,
        )


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Return the settings. `given` are arguments, where None means not given.

    The file is `demora.toml` in the current folder, or the one that `DEMORA_CONFIG` names. `BadSetting` names the source of
    the first setting that is wrong.
    """
    found = _found(os.environ if environment is None else environment, given)
    settings = Settings(**{name: _value(name, source, value) for name, (source, value) in found.items()})
    for problem in _broken_rules(settings):
        raise _from_source(problem, found)
    return settings


def sources(environment: Mapping[str, str], **given: Any) -> dict[str, str]:
    """Return where each setting comes from that is not a default: an argument, a variable or a line of the file."""
    return {name: source for name, (source, _) in _found(environment, given).items()}


def named_database(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the database URL of the environment or the file, and which of them names it; None if neither does."""
    source, value = _found(environment, {}).get("database_url", (None, None))
    return None if source is None else (_value("database_url", source, value), source)


def troubles(environment: Mapping[str, str], **given: Any) -> list[BadSetting]:
    """Return everything that is wrong with the settings; `load` raises only the first."""
    try:
        found = _found(environment, given)
    except BadSetting as problem:
        return [problem]
    values, refused = {}, []
    for name, (source, value) in found.items():
        try:
            values[name] = _value(name, source, value)
        except BadSetting as problem:
            refused.append(problem)
    return [*refused, *(_from_source(problem, found) for problem in _broken_rules(Settings(**values)))]


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that begin with `DEMORA_` and set nothing."""
    ours = {*_variables(), *_OWN}
    return sorted(
        name for name in environment if name.startswith(_PREFIX) and name not in ours and not name.startswith(PACE_VARIABLE)
    )


def nearest(unknown: str) -> str | None:
    """Return the variable that an unknown one was probably meant to be, None if none is similar."""
    return next(iter(difflib.get_close_matches(unknown, _variables(), 1, cutoff=0.8)), None)


def _found(environment: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the source and the raw value of each setting that is not a default."""
    found = _from_file(environment)
    for name in Settings.__struct_fields__:
        if environment.get(_variable(name)):
            found[name] = (_variable(name), environment[_variable(name)])
    found |= _pace_variables(environment, found)
    return found | {name: (name, value) for name, value in given.items() if value is not None}


def _variables() -> list[str]:
    return [FILE_VARIABLE, *map(_variable, Settings.__struct_fields__)]


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


def _from_file(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    path = Path(environment.get(FILE_VARIABLE) or DEFAULT_FILE)
    if not path.exists():
        if environment.get(FILE_VARIABLE):
            raise BadSetting(FILE_VARIABLE, f"the file {path} does not exist")
        return {}
    import tomllib

    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise BadSetting(str(path), f"cannot be read: {problem}") from problem
    unknown = sorted(set(content) - set(Settings.__struct_fields__))
    if unknown:
        raise BadSetting(str(path), f"unknown setting {unknown[0]!r}; known: {', '.join(Settings.__struct_fields__)}")
    return {name: (f"{path}: {name}", value) for name, value in content.items()}


def _value(name: str, source: str, value: Any) -> Any:
    kind = _KINDS[name]
    try:
        if kind is timedelta:
            return span(value, source)
        if kind is Keep:
            return value if isinstance(value, Keep) else keep(value, source)
        if kind is Pace:
            return value if isinstance(value, Pace) else _read_usual(value, source)
        if name == "pace":
            return _read_paces(value, source)
        if kind == _NAMES and isinstance(value, str):
            value = [name.strip() for name in value.split(",")]
        return msgspec.convert(value, kind, strict=not isinstance(value, str))
    except Invalid as problem:
        raise BadSetting(source, problem.reason) from None
    except msgspec.ValidationError:
        raise BadSetting(source, f"must be {_RIGHT[kind]}") from None


_NAMES = tuple[str, ...]
_RIGHT: dict[Any, str] = {
    str: "text",
    str | None: "text",
    int: "a whole number",
    int | None: "a whole number",
    bool: "true or false",
    _NAMES: "a list of names",
}
_KINDS: dict[str, Any] = get_type_hints(Settings) | {"builtin_handlers": _NAMES}


def _from_source(problem: BadSetting, found: Mapping[str, tuple[str, Any]]) -> BadSetting:
    """Return the problem under the name of the setting's source: a variable or a line of the file."""
    source, _ = found.get(problem.name, (problem.name, None))
    return BadSetting(source, problem.reason)


def _broken_rules(settings: Settings) -> Iterator[BadSetting]:
    """Yield the settings that are well formed but out of bounds."""
    if not 0 <= settings.port <= 65535:
        yield BadSetting("port", "must be from 0 to 65535")
    if settings.metrics_port is not None and not 0 <= settings.metrics_port <= 65535:
        yield BadSetting("metrics_port", "must be from 0 to 65535")
    if not 1 <= settings.concurrency <= 10_000:
        yield BadSetting("concurrency", "must be from 1 to 10000")
    if not timedelta(milliseconds=100) <= settings.lease <= timedelta(days=1):
        yield BadSetting("lease", "must be from 100ms to 1d")
    if not timedelta(minutes=1) <= settings.line_horizon <= timedelta(days=1):
        yield BadSetting("line_horizon", "must be from 1m to 1d")
    if not timedelta(seconds=1) <= settings.max_timeout <= LONGEST_TIMEOUT:
        yield BadSetting("max_timeout", f"must be from 1s to {say(LONGEST_TIMEOUT)}")
    if settings.builtin_handlers is not None and not _are_builtins(settings.builtin_handlers):
        yield BadSetting("builtin_handlers", f"must be all, none, or a list of {' and '.join(BUILTIN_HANDLERS)}")
    if settings.log_errors not in LOG_ERRORS:
        yield BadSetting("log_errors", f"must be {' or '.join(LOG_ERRORS)}")
    if not LEAST_IN_FLIGHT <= settings.in_flight_bytes <= 2**50:
        yield BadSetting(
            "in_flight_bytes", f"must be at least {LEAST_IN_FLIGHT}, to hold one batch of jobs and its response"
        )
    if settings.log_format not in LOG_FORMATS:
        yield BadSetting("log_format", f"must be {' or '.join(LOG_FORMATS)}")
    if settings.dashboard not in DASHBOARD:
        yield BadSetting("dashboard", f"must be {' or '.join(DASHBOARD)}")
    if settings.log_level not in LOG_LEVELS:
        yield BadSetting("log_level", f"must be one of {', '.join(LOG_LEVELS)}")
    for name in ("failed_auth_rate", "key_rate", "key_max_queues", "key_max_types", "key_max_waiting"):
        if not 0 <= getattr(settings, name) <= MOST_LIMIT:
            yield BadSetting(name, f"must be from 0, which means no limit, to {MOST_LIMIT}")
    yield from _broken_http(settings)
    yield from settings.postgres.broken_rules()
    yield from _broken_urls(settings)
    yield from _broken_outbound(settings)
    yield from _broken_paces(settings)


def _are_builtins(names: tuple[str, ...]) -> bool:
    return names in (("all",), ("none",)) or (bool(names) and set(names) <= set(BUILTIN_HANDLERS))


_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_OWN_PATHS = ("/api", "/dashboard", "/health", "/metrics")  # a proxy may strip the root path: it must not look like these


def _broken_http(settings: Settings) -> Iterator[BadSetting]:
    if settings.root_path and not _ROOT_PATH.fullmatch(settings.root_path):
        yield BadSetting("root_path", "must be a path like /jobs or /tools/jobs, with a slash at its beginning only")
    elif any(f"{settings.root_path}/".startswith(f"{own}/") for own in _OWN_PATHS):
        yield BadSetting("root_path", f"must not begin with {', '.join(_OWN_PATHS)}, which are paths of the service")
    if not 16 <= settings.http_connections <= 100_000:
        yield BadSetting("http_connections", "must be from 16 to 100000")
    per_address = settings.http_connections_per_address
    if per_address is not None and not 1 <= per_address <= 100_000:
        yield BadSetting("http_connections_per_address", "must be from 1 to 100000")
    try:
        _ = settings.proxies
    except Invalid as problem:
        yield BadSetting(problem.field, problem.reason)


def _broken_urls(settings: Settings) -> Iterator[BadSetting]:
    if settings.database_url.startswith(("http://", "https://")):
        yield from _broken_service(settings.database_url)
    for name in ("database_url", "database_listen_url"):
        url = getattr(settings, name) or ""
        try:
            if url.startswith(("postgresql://", "postgres://")):
                driver_url(url, name)
        except BadSetting as problem:
            yield problem
    if settings.redis_url is not None:
        try:
            redis_dsn(settings.redis_url)
        except BadSetting as problem:
            yield problem


def _broken_service(url: str) -> Iterator[BadSetting]:
    try:
        read = urlsplit(url)
        well_formed = bool(read.hostname) and read.port != 0 and not (read.query or read.fragment or read.username)
    except ValueError:
        well_formed = False
    if not well_formed:
        yield BadSetting("database_url", "the address of a service is https://host or https://host:port; give the key apart")


def _broken_outbound(settings: Settings) -> Iterator[BadSetting]:
    if not timedelta(milliseconds=100) <= settings.outbound_timeout <= timedelta(minutes=5):
        yield BadSetting("outbound_timeout", "must be from 100ms to 5m")
    if not 1 <= settings.outbound_per_host <= 1000:
        yield BadSetting("outbound_per_host", "must be from 1 to 1000")
    for name in ("outbound", "webhook_secrets", "proxies"):
        try:
            getattr(settings, name)
        except Invalid as problem:
            yield BadSetting(problem.field, problem.reason)


# Paces: a table in the file, `DEMORA_PACE`, `DEMORA_PACE_<QUEUE>`, and four variables without the prefix, which give all
# queues without a pace of their own one, and other paces the values that they leave out


PACE_VARIABLE = "DEMORA_PACE_"
_USUAL = "usual_pace"
_UNPREFIXED = {
    "DELAYED_JOB_GAP_SECONDS": ("gap", "s"),
    "MAX_DELAYED_JOBS_PER_CYCLE": ("burst", ""),
    "RAPID_GAP_WHEN_EMPTY_SECONDS": ("rapid_gap", "s"),
    "RAPID_MAX_JOBS_WHEN_EMPTY": ("rapid_burst", ""),
}


def _pace_variables(environment: Mapping[str, str], found: Mapping[str, tuple[str, Any]]) -> dict[str, tuple[str, Any]]:
    """Return the settings that the variables of single queues, and those without the prefix, add to those found so far."""
    own = {name: value for name, value in environment.items() if name.startswith(PACE_VARIABLE) and value}
    named = {name: environment[name] for name in _UNPREFIXED if environment.get(name)}
    if not (own or named):
        return {}
    values = {field: f"{_whole(name, named[name])}{unit}" for name, (field, unit) in _UNPREFIXED.items() if name in named}
    source, before = found.get("pace", (None, {}))
    table = ({EVERY_QUEUE: values} if named else {}) | _table(before, source or "pace")
    table |= {_queue(name): value for name, value in own.items()}
    more: dict[str, tuple[str, Any]] = {"pace": (" and ".join([*([source] if source else []), *own, *named]), table)}
    if named and _USUAL not in found:
        more[_USUAL] = (" and ".join(named), values)
    return more


def _whole(name: str, value: str) -> str:
    if not value.isdecimal():
        raise BadSetting(name, f"must be a whole number, not {value!r}")
    return value


def _broken_paces(settings: Settings) -> Iterator[BadSetting]:
    every = settings.pace.get(EVERY_QUEUE)
    for queue, request in settings.pace.items():
        try:
            usual = settings.usual_pace if every is None or queue == EVERY_QUEUE else every.over(settings.usual_pace)
            if request is not None:
                request.over(usual)
        except Invalid as problem:
            yield BadSetting("pace", f"{_of(queue)}: {problem.field}: {problem.reason}")


def _read_usual(value: Any, source: str) -> Pace:
    """Return the pace that gives a paced queue the values that its own pace leaves out."""
    request = _read(value, source)
    if request is None:
        raise Invalid(source, "the usual pace cannot be off; a queue has no pace until one is set for it")
    return request.over(Pace())


def _read_paces(value: Any, source: str) -> dict[str, PaceRequest | None]:
    """Return the requested paces by queue, or by `*` for all queues without one; None removes the pace of a queue."""
    if isinstance(value, Mapping) and all(isinstance(one, PaceRequest) for one in value.values()):
        return dict(value)
    return {check_paced(queue, source): _of_queue(queue, pace, source) for queue, pace in _table(value, source).items()}


def _of_queue(queue: str, pace: Any, source: str) -> PaceRequest | None:
    try:
        return _read(pace, source)
    except Invalid as problem:
        raise Invalid(source, f"{_of(queue)}: {problem.reason}") from None


def _of(queue: str) -> str:
    return "of all queues" if queue == EVERY_QUEUE else f"of queue {queue}"


def _read(value: Any, source: str) -> PaceRequest | None:
    if not isinstance(value, str | Mapping):
        raise Invalid(source, "must be text like 'gap=2m burst=3 stagger=30s', a table, or 'off'")
    return read_pace(value, source)


def _table(value: Any, source: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        raise Invalid(source, "must be a table of queues, or text like 'gap=2m burst=3; mail gap=10s; reports off'")
    return dict(_named(part.strip()) for part in value.split(";") if part.strip())


def _named(part: str) -> tuple[str, str]:
    """Return the queue that a part of the text names, or `*` if it begins with the pace, and the pace."""
    first, _, pace = part.partition(" ")
    return (EVERY_QUEUE, part) if "=" in first or part == "off" else (first, pace.strip())


def _queue(variable: str) -> str:
    name = variable.removeprefix(PACE_VARIABLE)
    return name.lower() if name.isupper() else name
