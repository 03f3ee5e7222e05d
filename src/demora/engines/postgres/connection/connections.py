"""Connections to PostgreSQL: the statements by name, the driver's errors, pools and sessions."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, ClassVar, NamedTuple

import asyncpg
import msgspec

from ....errors import StoreBusy, StoreClosed, StoreError, StoreGone, StoreUnreachable
from ....store.jobs import Topic
from ....system import forks, notices
from ....system.clock import Distance
from ...options import PostgresOptions, driver_url
from ...sql import queries

PACKAGE = "demora.engines.postgres"  # has the SQL files
_BLOCKS = queries.load(PACKAGE)
# Variants that fail if an id exists already. The check that this saves takes a fifth of the statement's time.
_NEW = {f"{name}_new": _BLOCKS[name].replace("on conflict do nothing", "", 1) for name in ("add", "add_one")}
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_SCHEMA = re.compile(r"\bdemora\.(?=[a-z])")


class Statement(NamedTuple):
    """SQL with numbered parameters, and their names in order."""

    sql: str
    parameters: tuple[str, ...]


@cache
def statements(schema: str) -> dict[str, Statement]:
    """Every statement, on the tables of a schema. Names are qualified, so that a session needs no search path."""
    return {name: _numbered(in_schema(sql, schema)) for name, sql in (_BLOCKS | _NEW).items()}


@lru_cache(maxsize=1024)
def walk(schema: str, name: str, conditions: tuple[str, ...], order: str) -> Statement:
    """The statement that reads the next jobs of a walk and checks each against the conditions."""
    matches = f"({' and '.join(_BLOCKS[f'match_{one}'] for one in conditions) or 'true'})"
    walked = _BLOCKS[f"walk_{name}"].replace("/* matches */", matches)
    return _numbered(in_schema(_BLOCKS["walked"].replace("/* walk */", walked).replace("/* order */", order), schema))


def script(name: str, schema: str) -> str:
    """The text of a file of this package, for a schema: several statements without parameters."""
    return in_schema(queries.with_statuses((files(PACKAGE) / name).read_text()), schema)


def in_schema(sql: str, schema: str) -> str:
    return _SCHEMA.sub(f'"{schema}".', sql)


def _numbered(sql: str) -> Statement:
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    return Statement(_PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql), tuple(names))


# The driver's errors


# The connection broke, and the outcome of a write is unknown: a server that shuts down may have committed it before.
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError,  # the server closed the connection, and the driver has not noticed yet
    ConnectionError,
    TimeoutError,
    OSError,
)
DRIVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
# Nothing was written, and the same statement may succeed at once.
PASSING = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


def is_lost(problem: BaseException) -> bool:
    """Whether an error leaves the outcome of a statement unknown."""
    if isinstance(problem, asyncpg.InterfaceError) and not isinstance(problem, ValueError):
        return True  # the driver found the connection closed
    return isinstance(problem, LOST)


def unreachable(problem: BaseException) -> StoreUnreachable:
    may_pass = isinstance(problem, (*LOST, asyncpg.TooManyConnectionsError))
    error = StoreUnreachable(f"cannot reach PostgreSQL: {_words(problem)}; nothing was written", may_pass=may_pass)
    error.__cause__ = problem
    return error


def unknown(problem: BaseException) -> StoreError:
    reason = problem.__cause__ or problem if isinstance(problem, StoreUnreachable) else problem  # without its own outcome
    error = StoreError(
        f"the connection to PostgreSQL broke and could not be made again: {_words(reason)}; "
        "whether the write was committed is unknown"
    )
    error.__cause__ = problem
    return error


def translate(problem: BaseException) -> StoreError:
    """The store's own error for one of the driver's."""
    if isinstance(problem, StoreError):
        return problem
    if isinstance(problem, asyncpg.LockNotAvailableError):
        error: StoreError = StoreBusy("rows stayed locked by another session; nothing was written")
    elif isinstance(problem, asyncpg.QueryCanceledError):
        error = StoreError("PostgreSQL took longer than DEMORA_DATABASE_TIMEOUT; nothing was written")
    else:
        error = StoreError(f"PostgreSQL: {_words(problem)}")
    error.__cause__ = problem
    return error


def refused_within(problem: BaseException) -> StoreError:
    """The store's own error for one that a driver raised in the caller's transaction, without SQLAlchemy's additions."""
    words = _words(getattr(problem, "orig", None) or problem).splitlines()[0]
    return StoreError(f"PostgreSQL, within your transaction: {words}; no job was added: roll the transaction back")


def _words(problem: BaseException) -> str:
    """The driver's own message, without parts that may repeat values: details of the server, which show rows, and errors
    about arguments and URLs."""
    if isinstance(problem, (ValueError, asyncpg.DataError)):
        return f"{type(problem).__name__}: a value or parameter was refused"
    words = str(problem.args[0]) if isinstance(problem, asyncpg.PostgresError) and problem.args else str(problem)
    return words.strip() or type(problem).__name__


# Pools and sessions


CONNECT = 10.0  # seconds to wait for a connection
LOCKED = 10_000  # milliseconds to wait for a row that another session holds
SPARE = 5.0  # seconds beyond the server's own limit after which the driver gives up a statement and its connection
KEPT = 2  # connections kept outside of the driver's pool, which takes longer than a quick statement to give one

ReadTime = Callable[[], int | None]  # the time in microseconds that a test has set; None for that of the server
DatabaseNumbers = tuple[int, int]  # the numbers of a server and of a database on it


class Session:
    """A connection for one call.

    `wall_us` is the time to use, in microseconds, or None for the database's own. `again` says that an earlier try of the
    same call lost its connection, so that the call may have been committed: it must look before it writes. `backend` is the
    server's process and its start; None behind a pooler, which may change it at any moment. With `lined` there is a line:
    rows record in which transaction they moved into waiting. The call sets `unplaced` if it records jobs that no caller puts
    into the line.
    """

    __slots__ = (
        "_connection",
        "_distance",
        "_statements",
        "again",
        "backend",
        "limit",
        "lined",
        "topics",
        "unplaced",
        "wall_us",
    )

    def __init__(
        self,
        connection: Any,
        known: dict[str, Statement],
        wall_us: int | None,
        lined: bool = False,
        distance: Distance | None = None,
    ) -> None:
        self._connection, self._statements, self.wall_us, self.lined = connection, known, wall_us, lined
        self._distance = distance or Distance()
        self.unplaced = False
        self.again = False
        self.topics: set[Topic] = set()  # whose waiters to wake once the call is committed
        self.backend: tuple[int, datetime] | None = connection.backend
        self.limit: float | None = None  # seconds after which a statement is cancelled, if less than usual

    def wake(self, topic: Topic) -> None:
        """Wake the waiters of a topic once the call is committed."""
        self.topics.add(topic)

    async def rows(self, statement: str | Statement, **what: Any) -> list[Any]:
        """Run a statement, given by name as a rule, and return its rows."""
        sql, names = self._statements[statement] if isinstance(statement, str) else statement
        what["clock"], what["lined"] = self.wall_us, self.lined
        limited = {} if self.limit is None else {"timeout": self.limit}  # borrowed connections know no such limit
        try:
            found: list[Any] = await self._connection.fetch(sql, *[what[name] for name in names], **limited)
        except AttributeError as problem:
            raise _closed_meanwhile(self._connection, problem) from problem
        return found

    async def pieces(self, statement: str, size: int, **what: Any) -> AsyncIterator[list[Any]]:
        """Run a statement within a transaction, and return its rows in pieces of this size."""
        sql, names = self._statements[statement]
        cursor = await self._connection.cursor(sql, *[what[name] for name in names])
        while piece := await cursor.fetch(size):
            yield piece

    async def row(self, statement: str, **what: Any) -> Any:
        found = await self.rows(statement, **what)
        return found[0] if found else None

    def passed_since(self, us: int, asked: float) -> int:
        """The microseconds since a statement read `us` from the database's clock. The statement was sent at `asked`, a
        monotonic time, and its answer has just arrived."""
        if self.wall_us is not None:
            return 0
        now = time.monotonic()
        self._distance.learn(us, asked, now)
        return self._distance.there_us(now) - us

    async def script(self, sql: str) -> None:
        """Run several statements without parameters."""
        await self._connection.execute(sql)

    def transaction(self, **how: Any) -> Any:
        return self._connection.transaction(**how)


BUILT_IN = 10_000  # types with smaller numbers are the same in every PostgreSQL database


class _Known(NamedTuple):
    """What stands for the driver's question about types where it need not be asked: a statement that has a name."""

    name: str = "known"


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that knows its process on the server, and the built-in types that an earlier connection asked for.

    The driver asks for the parts of array types in each connection anew, which takes the server longer than any statement
    of ours.
    """

    backend: tuple[int, datetime] | None = None
    _built_in: ClassVar[dict[frozenset[int], Any]] = {}  # what the server said of these types

    async def _introspect_types(self, typeoids: Any, *rest: Any, **more: Any) -> Any:
        asked = frozenset(typeoids)
        if asked in self._built_in:
            return self._built_in[asked], _Known()
        answer = await super()._introspect_types(typeoids, *rest, **more)
        if max(asked) < BUILT_IN and isinstance(answer, tuple) and len(answer) == 2:  # else the driver has changed
            self._built_in[asked] = answer[0]
        return answer


class Identity:
    """The name of the database that a store was opened on, None until it is known. Its pools share it."""

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name: str | None = None


class Pool:
    """A pool of connections, opened as needed. No call changes settings of a session, so none are reset.

    A connection that leads to another database than the first one raises `StoreGone`.
    """

    def __init__(self, url: str, options: PostgresOptions, clock: ReadTime, identity: Identity | None = None) -> None:
        self._url, self._options, self._clock = driver_url(url), options, clock
        self._identity = identity or Identity()
        self.statements = statements(options.schema)
        self.numbers: DatabaseNumbers | None = None
        self.lined = False
        self._distance = Distance()
        self._pool: Any = None
        self._kept: list[Any] = []
        self._sought = 0  # calls that wait for a connection

    async def open(self) -> int:
        """Connect, and return the version of the schema."""
        options = connection_options(self._options)
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=0,  # else the driver connects by itself, and logs tracebacks while the server is away
                max_size=self._options.connections,
                reset=_no_reset,
                init=self._note,
                connection_class=_Connection,
                **options,
            )
            async with self._pool.acquire(timeout=CONNECT) as connection:
                return await version_of(connection, self._options.schema)
        except (*DRIVER, ValueError) as problem:
            raise unreachable(problem) from problem

    async def identify(self) -> None:
        """Note which database this is. Every later connection must lead to the same one."""
        async with self.session() as session:
            self._identity.name = (await session.row("identity"))["name"]

    async def close(self, *, at_once: bool = False) -> None:
        """Disconnect once the statements under way have ended, or `at_once`."""
        pool, self._pool = self._pool, None
        while self._kept:
            await _release(pool, self._kept.pop())
        if pool is not None and at_once:
            pool.terminate()
        elif pool is not None:
            try:
                await asyncio.wait_for(pool.close(), CONNECT)
            except DRIVER:  # it takes too long, or a connection breaks meanwhile
                pool.terminate()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A session on a connection; raises `StoreError` if there is none in time, and then nothing was written."""
        pool = self._pool
        connection = await self._take(pool)
        try:
            yield Session(connection, self.statements, self._clock(), self.lined, self._distance)
        except BaseException:
            await _release(pool, connection)  # a cancelled call may have left a statement under way
            raise
        if self._pool is not None and not self._sought and len(self._kept) < KEPT and _is_open(connection):
            self._kept.append(connection)
        else:
            await _release(pool, connection)

    async def _take(self, pool: Any) -> Any:
        while self._kept:
            connection = self._kept.pop()
            if _is_open(connection):
                return connection
            await _release(pool, connection)
        self._sought += 1
        try:
            return await pool.acquire(timeout=CONNECT)
        except DRIVER as problem:
            raise unreachable(problem) from problem
        finally:
            self._sought -= 1

    async def _note(self, connection: Any) -> None:
        """Note the server of each new connection: the same address may lead to another server by now."""
        forks.release_in_child(connection, lambda held: forks.descriptors_of(held._transport))
        row = await connection.fetchrow(self.statements["database_numbers"].sql)
        self.numbers = row["server"], row["database"]
        if self._identity.name is not None and await self._identity_of(connection) != self._identity.name:
            problem = StoreGone(row["name"], replaced=True, file=False)
            notices.store_damaged(problem)
            raise problem
        if not self._options.pooler:
            await _note_backend(connection)

    async def _identity_of(self, connection: Any) -> str | None:
        try:
            name: str | None = await connection.fetchval(self.statements["identity"].sql)
        except asyncpg.UndefinedTableError:
            return None
        return name


class LazyPool:
    """A pool for one kind of reads, opened when it is first needed."""

    def __init__(self, url: str, options: PostgresOptions, clock: ReadTime, identity: Identity, *, connections: int) -> None:
        self._pool = Pool(url, msgspec.structs.replace(options, connections=connections), clock, identity)
        self._opening: asyncio.Task[int] | None = None
        self._closed = False

    async def opened(self) -> Pool:
        """The open pool. If it cannot be opened, the next call tries again."""
        if self._closed:
            raise StoreClosed
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._pool.open())
        opening = self._opening
        if not opening.done():
            await asyncio.wait([opening])
        try:
            opening.result()
        except BaseException:
            if self._opening is opening:
                self._opening = None
                await self._pool.close()
            raise
        return self._pool

    async def close(self) -> None:
        """Disconnect, and end the reads under way."""
        self._closed = True
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait([opening])
            await self._pool.close(at_once=True)


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the pool took it back when the server closed it
        return False


def _closed_meanwhile(connection: Any, problem: AttributeError) -> Exception:
    """What to raise for an AttributeError of the driver. It raises one between two messages of a statement, if another task
    has closed the connection."""
    return problem if _is_open(connection) else asyncpg.ConnectionDoesNotExistError("the connection was closed")


async def _release(pool: Any, connection: Any) -> None:
    try:
        await pool.release(connection, timeout=CONNECT)
    except DRIVER:
        with suppress(asyncpg.InterfaceError):  # it may be with the pool already
            connection.terminate()


async def _note_backend(connection: Any) -> None:
    connection.backend = await connection.fetchrow(
        "select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()"
    )


async def _no_reset(connection: Any) -> None:
    """Does nothing: no call changes settings of a session."""


def connection_options(options: PostgresOptions) -> dict[str, Any]:
    """The driver's options. Behind a pooler no statement is prepared, and no setting of the session is changed."""
    limit = options.timeout.total_seconds()
    usual: dict[str, Any] = {"timeout": CONNECT, "command_timeout": limit + SPARE, "max_cached_statement_lifetime": 0}
    if options.pooler:
        return {**usual, "statement_cache_size": 0}
    session = {
        "application_name": "demora",
        "statement_timeout": str(int(limit * 1000)),
        "lock_timeout": str(min(LOCKED, int(limit * 1000))),
        "idle_in_transaction_session_timeout": str(int((limit + SPARE) * 1000)),
        "jit": "off",  # compiling a statement takes longer than running it
        "plan_cache_mode": "force_generic_plan",  # each statement needs the same index for all values
        "enable_seqscan": "off",  # the table of a kept plan may have been empty then and hold millions now
        "enable_bitmapscan": "off",  # for the same reason: it reads all matches of an index, however few are wanted
    }
    return {**usual, "server_settings": session}


# Outside of a pool


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection outside of any pool, without prepared statements and time limits."""
    try:
        connection = await asyncpg.connect(driver_url(url), timeout=CONNECT, statement_cache_size=0)
    except (*DRIVER, ValueError) as problem:
        raise unreachable(problem) from problem
    try:
        yield connection
    finally:
        connection.terminate()


async def version_of(connection: Any, schema: str) -> int:
    """The version of the schema, 0 if there is none."""
    if not await connection.fetchval("select to_regclass($1) is not null", f'"{schema}".meta'):
        return 0
    version = await connection.fetchval(in_schema("select value from demora.meta where name = 'version'", schema))
    return int(version or 0)
