"""The driver's errors: which of them leave the outcome of a write unknown, and what the others are to a caller."""

import asyncpg

from ...errors import StoreBusy, StoreError, StoreUnreachable

# The connection broke. A server that shuts down may have committed before it said so.
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError,  # the server said farewell, and the driver has not yet understood
    ConnectionError,
    TimeoutError,
    OSError,
)
DRIVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
# Nothing was written, and the same may succeed at once.
PASSING = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


def is_lost(problem: BaseException) -> bool:
    """Whether an error leaves unknown what became of a statement."""
    if isinstance(problem, asyncpg.InterfaceError) and not isinstance(problem, ValueError):
        return True  # the driver noticed that the connection is closed
    return isinstance(problem, LOST)


def unreachable(problem: BaseException) -> StoreUnreachable:
    may_pass = isinstance(problem, (*LOST, asyncpg.TooManyConnectionsError))
    error = StoreUnreachable(f"cannot reach PostgreSQL: {_words(problem)}; nothing was written", may_pass=may_pass)
    error.__cause__ = problem
    return error


def unknown(problem: BaseException) -> StoreError:
    error = StoreError(
        f"PostgreSQL was lost and could not be asked again: {_words(problem)}; whether it was written is unknown"
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
    """The error for what a driver raised in the caller's transaction; of SQLAlchemy's only the words of its driver."""
    words = _words(getattr(problem, "orig", None) or problem).splitlines()[0]
    return StoreError(f"PostgreSQL, within your transaction: {words}; no job was added: roll the transaction back")


def _words(problem: BaseException) -> str:
    """The driver's own words, but for those that may repeat values: the details of the server, which show rows, and what the
    driver says of arguments and URLs that it does not take."""
    if isinstance(problem, (ValueError, asyncpg.DataError)):
        return f"{type(problem).__name__}: a value or parameter was not taken"
    words = str(problem.args[0]) if isinstance(problem, asyncpg.PostgresError) and problem.args else str(problem)
    return words.strip() or type(problem).__name__
