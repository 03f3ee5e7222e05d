"""Checks a request for a job and makes a `NewJob` of it. Python, HTTP and the command line all use it."""

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypedDict

import msgspec

from ..errors import Invalid, instead_of
from .job import DEFAULT_QUEUE, DEFAULT_RETRIES, DEFAULT_RETRY_DELAY, IdempotencyKey, NewJob, Priority, Unique, due_at
from .outbound.targets import read_url
from .payload import check_text, pack_object, unpack
from .spans import CENTURY, ZERO, moment, span, span_ms
from .states import Status

MOST_NAME, MOST_KEY, MOST_TAG, MOST_TAGS, MOST_REASON = 200, 255, 64, 32, 500
MOST_RETRIES = 1000
TYPE_AND_PAYLOAD = "type+payload"  # as `unique`: the key is a hash of the payload
LONGEST_RETRY_DELAY = timedelta(days=366)
LONGEST_TIMEOUT = timedelta(days=30)

_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:/-]{0,127}")
_QUEUE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLACE = re.compile(r"\d{1,16}\.\d{1,18}")  # in a list that is not in the order of ids
_FIELDS = '; if it is a field of the payload, put it into the dict: enqueue("type", {"field": …})'
_CALL = "function.enqueue(…) with its arguments by name"
_TOO_SOON = "the job would expire before it is due"


class JobOptions(TypedDict, total=False):
    """The options of a job besides its type and payload. None means not given."""

    at: datetime | None
    delay: timedelta | str | None
    queue: str | None
    priority: Priority | str | None
    max_retries: int | None
    retry_delay: timedelta | str | None
    timeout: timedelta | str | None
    key: str | None
    tags: Iterable[str] | None
    name: str | None
    webhook_url: str | None
    webhook_on_cancel: bool | None
    expires_at: datetime | None
    expires_in: timedelta | str | None
    unique: str | None
    if_waiting: str | None


class EnqueueOptions(JobOptions, total=False):
    """The options of `enqueue`: those of the job, and `within`, the caller's connection in whose transaction it is added."""

    within: Any


def make_job(id: str, type: str, payload: Any, options: JobOptions, *, now: datetime) -> NewJob:
    """Return a checked job to be stored. `Invalid` names the argument and says what would be right."""
    if not options.keys() <= _JOB_OPTIONS:
        check_type(type)  # first: a function in its place comes with arguments of its own
        unknown = min(options.keys() - _JOB_OPTIONS)
        raise Invalid(unknown, f"is not an option of a job{instead_of(unknown, _JOB_OPTIONS) or _FIELDS}")
    if options.get("at") is not None and options.get("delay") is not None:
        raise Invalid("delay", "give either a time or a delay, not both")
    job = NewJob(  # in the order of its fields: names would take longer than most checks
        id,
        check_type(type),
        type if (name := options.get("name")) is None else check_name(name),
        DEFAULT_QUEUE if (queue := options.get("queue")) is None else check_queue(queue),
        Priority.NORMAL if (priority := options.get("priority")) is None else check_priority(priority),
        pack_object({} if payload is None else payload, "payload"),
        None if (at := options.get("at")) is None else check_at(at, now),
        None if (delay := options.get("delay")) is None else span(delay, "delay"),
        DEFAULT_RETRIES if (retries := options.get("max_retries")) is None else check_retries(retries),
        DEFAULT_RETRY_DELAY if (first := options.get("retry_delay")) is None else check_retry_delay(first),
        None if (timeout := options.get("timeout")) is None else check_timeout(timeout),
        check_tags(tags) if (tags := options.get("tags")) else (),
        None if (url := options.get("webhook_url")) is None else check_webhook(url),
        webhook_on_cancel=check_flag(options.get("webhook_on_cancel"), "webhook_on_cancel"),
    )
    job = _expiring(job, now, options.get("expires_at"), options.get("expires_in"))
    job = _unique(job, options.get("unique"), options.get("if_waiting"))
    return job if (key := options.get("key")) is None else msgspec.structs.replace(job, key=_key(job, key))


_JOB_OPTIONS = JobOptions.__optional_keys__


def check_type(type: str) -> str:
    if callable(type):
        raise Invalid("type", f"a type is text, such as 'email.send'; to enqueue a job of a function, write {_CALL}")
    if not isinstance(type, str) or not _is_type(type):
        raise Invalid("type", "a type is 1 to 128 letters, digits and . _ : / - and begins with a letter, digit or _")
    return type


def check_queue(queue: str, field: str = "queue") -> str:
    if not isinstance(queue, str) or not _QUEUE.fullmatch(queue) or queue in (".", ".."):
        raise Invalid(field, "a queue is named with 1 to 64 letters, digits, dots, dashes and underscores")
    return queue


def check_priority(priority: Priority | str) -> Priority:
    if isinstance(priority, Priority):
        return priority
    if not isinstance(priority, str) or priority not in Priority.__members__:
        raise Invalid("priority", f"must be one of {', '.join(Priority.__members__)}")
    return Priority[priority]


def check_status(status: Status | str) -> Status:
    if isinstance(status, Status):
        return status
    if not isinstance(status, str) or status not in Status.__members__:
        raise Invalid("status", f"must be one of {', '.join(Status.__members__)}")
    return Status[status]


def check_cursor(cursor: str) -> str:
    if not isinstance(cursor, str) or not (_ID.fullmatch(cursor) or _PLACE.fullmatch(cursor)):
        raise Invalid("after", "must be the next cursor of an earlier page")
    return cursor


def check_name(name: str) -> str:
    return _text(name, "name", MOST_NAME)


def check_tag(tag: str) -> str:
    return _text(tag, "tag", MOST_TAG)


def check_reason(reason: str) -> str:
    return _text(reason, "reason", MOST_REASON)


def check_at(at: datetime, now: datetime, field: str = "at") -> datetime:
    moment(at, field)
    if abs(at - now) > CENTURY:
        raise Invalid(field, "a time within 100 years of now is allowed")
    return at


def check_timeout(timeout: timedelta | str) -> timedelta:
    checked = span(timeout, "timeout", most=LONGEST_TIMEOUT)
    if checked == ZERO:
        raise Invalid("timeout", "must be greater than zero")
    return checked


def check_retries(retries: int) -> int:
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= MOST_RETRIES:
        raise Invalid("max_retries", f"must be a whole number from 0 to {MOST_RETRIES}")
    return retries


def check_retry_delay(delay: timedelta | str) -> timedelta:
    return span(delay, "retry_delay", most=LONGEST_RETRY_DELAY)


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise Invalid("tags", f"must be a list of texts, not {type(tags).__name__}")
    checked = tuple(_text(tag, f"tags[{n}]", MOST_TAG) for n, tag in enumerate(tags))
    if len(checked) > MOST_TAGS:
        raise Invalid("tags", f"at most {MOST_TAGS} tags are allowed")
    return tuple(dict.fromkeys(checked))


def check_webhook(url: str) -> str:
    """Return the URL if it can be read. Whether demora may call it depends on the settings."""
    read_url(url, "webhook_url")
    return url


def check_flag(value: bool | None, field: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise Invalid(field, "must be true or false")
    return bool(value)


def check_expiry(job: NewJob, now: datetime, prefix: str = "") -> None:
    """Refuse a job that would expire before it is due. `prefix` names the job in a batch."""
    due = due_at(job.at, job.delay, now)
    if job.expires_at is not None and job.expires_at <= due:
        raise Invalid(f"{prefix}expires_at", _TOO_SOON)
    if job.expires_in is not None and now + job.expires_in <= due:
        raise Invalid(f"{prefix}expires_in", _TOO_SOON)


@lru_cache(1024)
def _is_type(text: str) -> bool:
    return _TYPE.fullmatch(text) is not None


def _text(value: str, field: str, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise Invalid(field, f"must be text of 1 to {most} characters")
    check_text(value, field)
    return value


def _expiring(job: NewJob, now: datetime, at: datetime | None, in_: timedelta | str | None) -> NewJob:
    if at is None and in_ is None:
        return job
    if at is not None and in_ is not None:
        raise Invalid("expires_in", "give either a time or a span for the expiry, not both")
    job = msgspec.structs.replace(
        job,
        expires_at=None if at is None else check_at(at, now, "expires_at"),
        expires_in=None if in_ is None else span(in_, "expires_in"),
    )
    check_expiry(job, now)
    return job


def _unique(job: NewJob, unique: str | None, if_waiting: str | None) -> NewJob:
    if unique is None and if_waiting is None:
        return job
    if unique is None:
        raise Invalid("if_waiting", "applies to unique jobs only; give unique too")
    if if_waiting not in (None, "keep", "replace"):
        raise Invalid("if_waiting", "must be keep or replace")
    _text(unique, "unique", MOST_KEY)
    if unique == TYPE_AND_PAYLOAD:
        same = msgspec.json.encode(unpack(job.payload), order="deterministic")
        unique = f"{TYPE_AND_PAYLOAD}:{hashlib.sha256(same).hexdigest()}"
    return msgspec.structs.replace(job, unique=Unique(unique, replace=if_waiting == "replace"))


def _key(job: NewJob, key: str) -> IdempotencyKey:
    _text(key, "key", MOST_KEY)
    return IdempotencyKey(key, _request_hash(job))


def _request_hash(job: NewJob) -> bytes:
    """Return a hash that is equal for equal requests, whatever the order of keys in the payload."""
    asked = (
        *(job.type, job.name, job.queue, job.priority.name, unpack(job.payload)),
        *(job.at, None if job.delay is None else span_ms(job.delay), job.max_retries, span_ms(job.retry_delay)),
        *(None if job.timeout is None else span_ms(job.timeout), job.tags, job.webhook_url),
        *(job.expires_at, None if job.expires_in is None else span_ms(job.expires_in)),
        *(None if job.unique is None else (job.unique.key, job.unique.replace),),
        *((True,) if job.webhook_on_cancel else ()),  # included only if set, so that stored hashes stay valid
    )
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).digest()
