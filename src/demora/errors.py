"""Every error that demora raises to its callers: one root, names that say the fact, sentences built from data."""

from collections.abc import Sequence


class DemoraError(Exception):
    """The root of all errors that demora raises to an application."""


class Invalid(DemoraError):
    """What was asked for is malformed: `field` says where, by the name of the argument, `reason` what is wrong and what
    would be right."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


class TooLarge(Invalid):
    """A value is well formed but over its size limit."""


class BadSetting(DemoraError):
    """A setting cannot be used as it is."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


class CannotListen(BadSetting):
    """A setting is well formed, and the service cannot listen there, or must not yet."""


class BadHandler(DemoraError):
    """A function cannot be registered as a handler."""

    def __init__(self, type: str, reason: str) -> None:
        super().__init__(f"handler for {type!r}: {reason}")


class UnknownJobType(DemoraError):
    """`known_types_only` is set and no handler is registered for this type."""

    def __init__(self, type: str, known: Sequence[str]) -> None:
        super().__init__(f"no handler is registered for type {type!r}; known types: {', '.join(sorted(known)) or 'none'}")
        self.type = type


class JobNotFound(DemoraError):
    """No job has this id; it may have been deleted or purged."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no job has the id {id}")
        self.id = id


class WrongState(DemoraError):
    """The job is in a state that does not allow this verb."""

    def __init__(self, id: str, verb: str, status: str, allowed: str) -> None:
        super().__init__(f"cannot {verb} job {id}: it is {status}; {verb} takes a job that is {allowed}")
        self.id, self.verb, self.status = id, verb, status


class KeyReused(DemoraError):
    """The idempotency key already belongs to a different request."""

    def __init__(self, key: str, job: int | None = None) -> None:
        of = "" if job is None else f" of jobs[{job}]"
        super().__init__(f"the idempotency key {key!r}{of} was used before with a different request; use a new key")
        self.key, self.job = key, job


class ApiKeyNotFound(DemoraError):
    """No API key has this id. The id is not told back: somebody may have given the whole key."""

    def __init__(self) -> None:
        super().__init__("no API key has this id; demora keys list shows them")


class ApiKeyInForce(DemoraError):
    """An API key that still lets somebody in cannot be forgotten."""

    def __init__(self) -> None:
        super().__init__("this API key is still in force; revoke it first (demora keys revoke)")


class ApiKeyNotInForce(DemoraError):
    """An API key that is revoked or has expired gets no new secret."""

    def __init__(self) -> None:
        super().__init__("this API key is revoked or has expired; make another (demora keys create)")


class NotAllowedForKey(DemoraError):
    """The API key may not submit jobs to this queue, or of this type."""

    def __init__(self, field: str, name: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{field}: this API key may not use {name!r}; it may use {', '.join(allowed)}")
        self.field = field


class LimitReached(DemoraError):
    """The API key has used as many names of queues, or of types, as it may. To wait does not help."""

    def __init__(self, kind: str, most: int) -> None:
        super().__init__(
            f"{kind}: this API key has used {most:,} names of {kind}s, which is its limit; use one of these, or raise the "
            f"limit (demora keys limit ID --max-{kind}s)"
        )
        self.field = kind


class TooManyWaiting(DemoraError):
    """As many jobs of the API key wait as it may have. Once some have run, there is room again."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most:,} jobs of this API key may wait at a time; try again when some of them have run")


class SecretNotFound(DemoraError):
    """No secret for webhooks has this id."""

    def __init__(self) -> None:
        super().__init__("no secret has this id; demora webhooks secret list shows them")


class UrlNotDisabled(DemoraError):
    """A URL cannot be enabled that is not disabled."""

    def __init__(self) -> None:
        super().__init__("this URL is not disabled; demora webhooks disabled lists those that are")


class QueueNotFound(DemoraError):
    """No queue has this name: nothing was ever enqueued there, and nobody changed it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no queue {name}; demora queues lists them")
        self.name = name


class NotRead(DemoraError):
    """A payload or result was asked of a job that was found without it."""

    def __init__(self, id: str, field: str) -> None:
        super().__init__(
            f"the {field} of job {id} was not read: find jobs with {field!r} in fields, or get the job by its id"
        )
        self.id, self.field = id, field


class StillRunning(DemoraError):
    """The wait ended before the job did."""

    def __init__(self, id: str, status: str) -> None:
        super().__init__(f"job {id} has not ended yet: it is {status}")
        self.id, self.status = id, status


class JobFailed(DemoraError):
    """The awaited job ended without a result."""

    def __init__(self, id: str, status: str, error: str | None) -> None:
        super().__init__(f"job {id} ended {status}" + (f": {error}" if error else ""))
        self.id, self.status, self.error = id, status, error


class WouldBlock(DemoraError):
    """A blocking call was made on a thread whose event loop it would bring to a standstill."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"blocking.{verb} would hold up the event loop of this thread: await the verb without `blocking` here, or call "
            "from another thread (asyncio.to_thread)"
        )
        self.verb = verb


class StoreError(DemoraError):
    """The database refused or could not be reached; whether a write happened is unknown unless said otherwise."""


class StoreUnreachable(StoreError):
    """No connection to the database could be had; nothing was written. `may_pass` says that the server may only be
    starting, or out of reach for a while."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class StoreBusy(StoreError):
    """The database stayed locked by others for longer than the limit; nothing was written."""


class SearchTooSlow(StoreError):
    """A search was stopped because it read for longer than its limit of time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the search was stopped after {seconds:g} s: too many jobs had to be read one by one. Add status=FAILED or "
            "status=PROCESSING, which have an index, or leave filters out; demora jobs searches without a limit of time"
        )


class TooManySearches(StoreError):
    """A search was not started because as many as may run at once were running, and none ended in time."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} searches of jobs are running already, as many as may; try again in a few seconds")


class StoreGone(StoreError):
    """The database file was deleted or replaced while it was open; nothing was written."""

    def __init__(self, file: str, *, replaced: bool) -> None:
        fate = "another file is in its place" if replaced else "it is no longer there"
        super().__init__(
            f"the database file {file} was taken away while it was open: {fate}, and nothing is written any more; put the "
            "file back, or stop all processes that use it and start them again"
        )
        self.file, self.replaced = file, replaced


class StoreDamaged(StoreError):
    """The write-ahead log of the database was cut, deleted or replaced while it was open; nothing was written. What was in
    it is lost."""

    def __init__(self, file: str, damage: str) -> None:
        super().__init__(
            f"the write-ahead log {file} {damage} by another program: what was committed last is lost, and nothing is "
            "written any more; stop all processes that use the database, run demora doctor, and start them again"
        )
        self.file, self.damage = file, damage


class StoreClosed(StoreError):
    """The store is not open."""

    def __init__(self) -> None:
        super().__init__("the store is closed; open it first (`async with app:`)")


class OneLoopOnly(StoreError):
    """The database is in memory, and lives on another event loop that still runs."""

    def __init__(self) -> None:
        super().__init__(
            "a database in memory lives on the one event loop that opened it, and that is another one, which still runs: "
            "ask there, or use a file"
        )


class OpenInParent(StoreError):
    """The file was open in the process that this one was forked from."""

    def __init__(self, path: object) -> None:
        super().__init__(
            f"this process was forked while {path} was open, and SQLite would not lock it properly here: close it before "
            "the fork (`await app.close()`; `app.blocking` does so by itself), or start processes with spawn"
        )


class SchemaTooNew(StoreError):
    """The database was migrated by a newer demora."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the database has schema {found}, this demora knows up to {known}: upgrade demora")


class ProcessDied(DemoraError):
    """The process of a run ended, or had to be ended, before it said what the run came to."""

    def __init__(self, fate: str) -> None:
        super().__init__(f"the process of this run {fate}")
        self.fate = fate


class RaisedInProcess(DemoraError):
    """What a process handler raised, as far as it can be told in another process: `error` begins with its class."""

    def __init__(self, error: str, traceback: str | None, *, permanent: bool) -> None:
        super().__init__(error)
        self.error, self.traceback, self.permanent = error, traceback, permanent


class WorkerDied(DemoraError):
    """A worker gave up, and with it the block that it was to last for."""

    def __init__(self, id: str, trouble: str) -> None:
        super().__init__(f"worker {id} gave up: {trouble}")
        self.id, self.trouble = id, trouble


class WrongProcess(DemoraError):
    """A worker was to start in a process that was made to call handlers."""

    def __init__(self) -> None:
        super().__init__(
            "a process handler's application is imported again in its process, which must start no worker; "
            "start yours below `if __name__ == '__main__':`"
        )
