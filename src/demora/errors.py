"""The errors that demora raises to its callers. They have one root, and most build their text from data. Parts that can be
left out, such as the line, outbound calls and `testing`, define a few of their own under the same root."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self


class DemoraError(Exception):
    """The root of all errors that demora raises to an application. `repeated` is True only over HTTP: then an earlier try of
    the same request, whose answer was lost, may have been carried out."""

    repeated = False

    @classmethod
    def received(cls, text: str, facts: Mapping[str, Any]) -> Self:
        """Return this error as a service has described it: with the text of the service, and with these attributes."""
        error = cls.__new__(cls, text)  # the constructor would build another text
        for name, value in facts.items():
            setattr(error, name, value)
        return error


class Invalid(DemoraError):
    """The request is malformed. `field` is the name of the argument; `reason` says what is wrong and what is expected."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


class TooLarge(Invalid):
    """A value is well formed but exceeds its size limit."""


class BadSetting(DemoraError):
    """A setting has a bad value."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


class CannotListen(BadSetting):
    """The service cannot listen on the address of the settings, or may not do so yet."""


class MetricsNotInstalled(DemoraError):
    """The caller asked for metrics, but the library that writes them is missing."""

    def __init__(self) -> None:
        super().__init__("metrics need a library that is not installed: pip install 'demora[metrics]'")


class BadHandler(DemoraError):
    """A function cannot be registered as a handler."""

    def __init__(self, type: str, reason: str) -> None:
        super().__init__(f"handler for {type!r}: {reason}")


class UnknownJobType(DemoraError):
    """No handler is registered for this type, and `known_types_only` is set or the type is probably misspelt. `job` says
    which one of many jobs has the type, counted from 0."""

    def __init__(self, type: str, known: Sequence[str], hint: str = "", *, job: int | None = None) -> None:
        known_types = f"known types: {', '.join(sorted(known)) or 'none'}"
        super().__init__(f"no handler is registered for type {type!r}{hint or f'; {known_types}'}")
        self.type, self.job = type, job


class JobNotFound(DemoraError):
    """No job has this id; it may have been deleted or purged."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no job has the id {id}")
        self.id = id


class ScheduleNotFound(DemoraError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule is named {name!r}; demora schedules lists them")
        self.name = name


class ScheduleTaken(DemoraError):
    """A schedule with this name already exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a schedule named {name!r} exists; choose another name, or change it: demora schedule edit {name}")
        self.name = name


class WrongState(DemoraError):
    """The state of the job does not allow this verb."""

    def __init__(self, id: str, verb: str, status: str, allowed: str) -> None:
        super().__init__(f"cannot {verb} job {id}: it is {status}; {verb} takes a job that is {allowed}")
        self.id, self.verb, self.status = id, verb, status


class UndoTooLate(DemoraError):
    """The cancel of this job cannot be undone, or can no longer be."""

    def __init__(self, id: str, status: str) -> None:
        super().__init__(
            f"the cancel of job {id} cannot be undone: it is {status}, or was cancelled more than 30 s ago or while it ran, "
            "or the cancel has triggered a webhook; a retry runs it now"
        )
        self.id, self.status = id, status


class JobChanged(DemoraError):
    """The job is no longer as the caller has read it."""

    def __init__(self, id: str) -> None:
        super().__init__(f"job {id} has changed since it was read; read it again before you change it")
        self.id = id


class KeyReused(DemoraError):
    """The idempotency key belongs to a different request."""

    def __init__(self, key: str, job: int | None = None) -> None:
        of = "" if job is None else f" of jobs[{job}]"
        super().__init__(f"the idempotency key {key!r}{of} was used before with a different request; use a new key")
        self.key, self.job = key, job


class ApiKeyNotFound(DemoraError):
    """No API key has this id. The text does not repeat the id, because the caller may have passed the whole key."""

    def __init__(self) -> None:
        super().__init__("no API key has this id; demora keys list shows them")


class ApiKeyInForce(DemoraError):
    """An API key that is in force cannot be deleted."""

    def __init__(self) -> None:
        super().__init__("this API key is still in force; revoke it first (demora keys revoke)")


class ApiKeyNotInForce(DemoraError):
    """An API key that is revoked or has expired cannot get a new secret."""

    def __init__(self) -> None:
        super().__init__("this API key is revoked or has expired; create another (demora keys create)")


class NotAllowedForKey(DemoraError):
    """The API key may not submit jobs to this queue, or of this type."""

    def __init__(self, field: str, name: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{field}: this API key may not use {name!r}; it may use {', '.join(allowed)}")
        self.field = field


class LimitReached(DemoraError):
    """The API key has used as many names of queues, or of types, as its limit allows. Waiting does not help."""

    def __init__(self, kind: str, most: int) -> None:
        super().__init__(
            f"{kind}: this API key has used {most:,} names of {kind}s, which is its limit; use one of these, or raise the "
            f"limit (demora keys limit ID --max-{kind}s)"
        )
        self.field = kind


class TooManyWaiting(DemoraError):
    """The API key has as many waiting jobs as its limit allows. The caller can try again when some of them have run."""

    def __init__(self, most: int) -> None:
        super().__init__(f"this API key has reached its limit of {most:,} waiting jobs; try again when some have run")


class SecretNotFound(DemoraError):
    """No webhook secret has this id."""

    def __init__(self) -> None:
        super().__init__("no secret has this id; demora webhooks secret list shows them")


class UrlNotDisabled(DemoraError):
    """The URL to enable is not disabled."""

    def __init__(self) -> None:
        super().__init__("this URL is not disabled; demora webhooks disabled lists those that are")


class QueueNotFound(DemoraError):
    """No queue has this name: no job was ever enqueued there, and it was never changed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no queue {name}; demora queues lists them")
        self.name = name


class WorkerNotFound(DemoraError):
    """No remote worker has this id, or another API key has registered it."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no worker {id!r} is registered with this API key; register it again: POST /api/v1/workers")
        self.id = id


class NotRead(DemoraError):
    """The caller read the payload or result of a job that was found without it."""

    def __init__(self, id: str, field: str) -> None:
        super().__init__(
            f"the {field} of job {id} was not read: find jobs with {field!r} in fields, or get the job by its id"
        )
        self.id, self.field = id, field


class StillRunning(DemoraError):
    """The job had not ended when the timeout passed."""

    def __init__(self, id: str, status: str) -> None:
        super().__init__(f"job {id} has not ended yet: it is {status}")
        self.id, self.status = id, status


class ListenerTooSlow(DemoraError):
    """A listener to events was too far behind and was cut off. `position` is where to resume."""

    def __init__(self, position: str) -> None:
        super().__init__("this listener fell too far behind and was cut off; listen again with after=position")
        self.position = position


class JobFailed(DemoraError):
    """The awaited job ended without a result."""

    def __init__(self, id: str, status: str, error: str | None) -> None:
        super().__init__(f"job {id} ended {status}" + (f": {error}" if error else ""))
        self.id, self.status, self.error = id, status, error


class WouldBlock(DemoraError):
    """A blocking call was made on the thread of a running event loop, which it would block."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"blocking.{verb} would hold up the event loop of this thread: await the verb without `blocking` here, or call "
            "from another thread (asyncio.to_thread)"
        )
        self.verb = verb


class NotOverHttp(DemoraError):
    """The application uses a service over HTTP, which does not offer this verb."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"the client over HTTP does not offer {verb}: use the HTTP route of the service if there is one, or an "
            "application that can reach the database"
        )
        self.verb = verb


class ServiceRefused(DemoraError):
    """The service refused the request before it looked at it: the API key, its scope or its rate is not sufficient, or the
    service does not know the route. `type` is the type of the problem, `status` the HTTP status."""

    def __init__(self, status: int, type: str, detail: str) -> None:
        super().__init__(f"the service answered {status}: {detail}")
        self.status, self.type, self.detail = status, type, detail


class StoreError(DemoraError):
    """The store could not do what was asked: the database refused a statement, or the connection was lost. A write may or
    may not have been made, unless the text says which. Nothing was written if the error is of a subclass."""


class StoreUnreachable(StoreError):
    """The database could not be reached, and nothing was written.

    `may_pass` is True if the server may only be starting or temporarily out of reach.
    """

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class StoreBusy(StoreError):
    """Other connections kept the database locked for longer than the limit, and nothing was written."""


class SearchTooSlow(StoreError):
    """A search was stopped because it exceeded its time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the search was stopped after {seconds:g} s: too many jobs had to be read one by one. Add a "
            "status, and a queue, a type or a tag; demora jobs searches without a time limit"
        )


class TooManySearches(StoreError):
    """A search was not started, because the allowed number of searches were running and none ended in time."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} searches of jobs are running, which is the limit; try again in a few seconds")


class StoreGone(StoreError):
    """The database file was deleted or replaced while it was open, and nothing was written. On PostgreSQL: another database
    answers under its name, since it was dropped and created anew."""

    def __init__(self, database: str, *, replaced: bool, file: bool = True) -> None:
        fate = "another file is in its place" if replaced else "it no longer exists"
        of_file = (
            f"the database file {database} was removed while it was open: {fate}, and demora no longer writes; put the file "
            "back, or stop all processes that use it and start them again"
        )
        of_server = (
            f"the database {database} was dropped and created anew while it was open, and demora no longer writes; stop all "
            "processes that use it and start them again"
        )
        super().__init__(of_file if file else of_server)
        self.database, self.replaced = database, replaced


class StoreDamaged(StoreError):
    """The write-ahead log of the database was cut, deleted or replaced while it was open, and nothing was written.

    The transactions that were only in the log are lost.
    """

    def __init__(self, file: str, damage: str) -> None:
        super().__init__(
            f"the write-ahead log {file} {damage} by another program: the last commits are lost, and demora no longer "
            "writes; stop all processes that use the database, run demora doctor, and start them again"
        )
        self.file, self.damage = file, damage


class WorkerRefused(StoreError):
    """The service does not let this worker work: its API key, or what it serves, must change first. `advice` says how."""

    def __init__(self, said: str, advice: str) -> None:
        super().__init__(f"the service refuses this worker: {said}; {advice}")
        self.said, self.advice = said, advice


class StoreClosed(StoreError):
    """The store is not open."""

    def __init__(self) -> None:
        super().__init__("the store is closed; open it first (`async with app:`)")


class OneLoopOnly(StoreError):
    """The database is in memory and belongs to another event loop that still runs."""

    def __init__(self) -> None:
        super().__init__(
            "a database in memory belongs to the event loop that opened it, and that other loop is still running: "
            "make the call there, or use a file"
        )


class OpenInParent(StoreError):
    """The process was forked while the file was open."""

    def __init__(self, path: object) -> None:
        super().__init__(
            f"this process was forked while {path} was open, and SQLite cannot lock it reliably here: close it before the "
            "fork (`await app.close()`; `app.blocking` does so by itself), or start processes with spawn"
        )


class SchemaTooNew(StoreError):
    """A newer version of demora has migrated the database, and this one may no longer use it."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the database has schema {found}, this version of demora knows up to {known}: upgrade demora")


class ProcessDied(DemoraError):
    """The process of a process handler ended, or was killed, before it reported the outcome of its run."""

    def __init__(self, fate: str) -> None:
        super().__init__(f"the process of this run {fate}")
        self.fate = fate


class RaisedInProcess(DemoraError):
    """The exception of a process handler, as text from its process. `error` begins with the name of its class."""

    def __init__(self, error: str, traceback: str | None, *, permanent: bool) -> None:
        super().__init__(error)
        self.error, self.traceback, self.permanent = error, traceback, permanent


class WorkerDied(DemoraError):
    """The worker of an `app.worker()` block gave up, which ends the block."""

    def __init__(self, id: str, trouble: str) -> None:
        super().__init__(f"worker {id} gave up: {trouble}")
        self.id, self.trouble = id, trouble


class WrongProcess(DemoraError):
    """A worker was started in a process that only runs process handlers."""

    def __init__(self) -> None:
        super().__init__(
            "the process of a process handler imports the application again, and must not start a worker; start yours "
            "below `if __name__ == '__main__':`"
        )


_SIMILAR = 0.6  # of 1, as difflib counts


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean max_retries?` with the most similar of the known names, and nothing if none is similar."""
    found = difflib.get_close_matches(name, sorted(known), 1, cutoff=_SIMILAR)
    return f"; did you mean {found[0]}?" if found else ""


_DELAY, _AT, _TIMEOUT, _QUEUE = 'delay="60s"', "at=datetime(…, tzinfo=UTC)", 'timeout="60s"', 'queue="mail"'
_ENQUEUE = "await {name}.enqueue(…), or {name}.enqueue_blocking(…) without an event loop"
_LATER = 'await {name}.options(delay="60s").enqueue(…), or .options(at=datetime(…, tzinfo=UTC)) for a given time'
_BY_TYPE = 'await {name}.enqueue("type", {{…}}), with delay="60s" or at=datetime(…, tzinfo=UTC) if it is to run later'
_JOB = '@{name}.job("type")'

# What Celery, RQ, arq, Dramatiq, Huey, Procrastinate and others call the options and verbs of demora.
_OPTIONS_ELSEWHERE = {
    **dict.fromkeys(("countdown", "defer_by", "_defer_by", "enqueue_in", "schedule_in"), _DELAY),
    **dict.fromkeys(("eta", "defer_until", "_defer_until", "enqueue_at", "run_at", "run_date", "schedule_at"), _AT),
    **dict.fromkeys(("expires", "_expires", "max_age", "ttl"), 'expires_in="1h"'),
    **dict.fromkeys(("job_timeout", "time_limit", "soft_time_limit"), _TIMEOUT),
    **dict.fromkeys(("queue_name", "_queue_name", "routing_key"), _QUEUE),
    **dict.fromkeys(("task_id", "job_id", "_job_id", "queueing_lock"), 'unique="order-7"'),
    **dict.fromkeys(("retry_backoff", "min_backoff", "default_retry_delay"), 'retry_delay="2s"'),
    **dict.fromkeys(("retry_backoff_max", "max_backoff"), 'retry_cap="10m"'),
    "throws": "permanent=(ValueError,)",
}
_NO_OPTIONS_HERE = {
    **dict.fromkeys(("args", "kwargs"), 'the payload as a dict, enqueue("type", {"to": …}), or send.enqueue(to=…)'),
    **dict.fromkeys(("bind", "pass_context"), "a parameter ctx: Context"),
}
_VERBS_OF_JOBS_ELSEWHERE = {
    **dict.fromkeys(("delay", "send", "defer", "defer_async", "kiq"), _ENQUEUE),
    **dict.fromkeys(("apply_async", "send_with_options", "schedule", "configure", "enqueue_in", "enqueue_at"), _LATER),
}
_VERBS_OF_APPS_ELSEWHERE = {
    **dict.fromkeys(("task", "actor"), _JOB),
    **dict.fromkeys(("send_task", "enqueue_job", "enqueue_in", "enqueue_at", "defer", "send"), _BY_TYPE),
    **dict.fromkeys(("periodic", "periodic_task", "cron"), '@{name}.every("0 3 * * *") above ' + _JOB),
    **dict.fromkeys(("add_periodic_task", "add_job"), '{name}.schedule("nightly", "type", cron="0 3 * * *")'),
}


def ours(option: str) -> str | None:
    """Return `delay="60s"` for the name that another queue gives to this option; None for all other names."""
    return _OPTIONS_ELSEWHERE.get(option)


def instead_of(option: str, known: Iterable[str]) -> str:
    """Return `; write delay="60s"` for an option of another queue, and for all other names what `did_you_mean` returns."""
    written = ours(option) or _NO_OPTIONS_HERE.get(option)
    return f"; write {written}" if written else did_you_mean(option, known)


def no_verb_of_a_job(function: object, verb: str) -> AttributeError:
    """Return the error for a verb that a job function lacks, with demora's own if another queue has a verb of this name."""
    return _no_verb(function, verb, vars(function).get("__name__", "f"), _VERBS_OF_JOBS_ELSEWHERE)


def no_verb_of_an_app(app: object, verb: str) -> AttributeError:
    """Return the error for a verb that an application lacks, as `no_verb_of_a_job` does."""
    return _no_verb(app, verb, "app", _VERBS_OF_APPS_ELSEWHERE)


def _no_verb(of: object, verb: str, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    hint = f"; write {elsewhere[verb].format(name=name)}" if verb in elsewhere else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {verb!r}{hint}", name=verb, obj=of)
