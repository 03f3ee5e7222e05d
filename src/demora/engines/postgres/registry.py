"""Queues and their settings, workers and their heartbeats, and API keys."""

import json
from collections.abc import Iterable, Set
from datetime import timedelta

import msgspec

from ...core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret, Scope
from ...core.job import QueueOrder
from ...core.spans import from_ms, span_ms
from ...store.api_keys import KeyList, KeyLookup
from ...store.jobs import Queue, QueueChange, Topic, WorkerRecord
from . import rows
from .connections import Session


async def name_queues(session: Session, names: Iterable[str]) -> None:
    """Record queues that are new."""
    for name in names:
        await session.rows("name_queue", name=name)


async def set_queue(session: Session, name: str, change: QueueChange) -> Queue:
    async with session.transaction():
        await session.rows("name_queue", name=name)
        before = rows.queue(row := await session.row("queue", name=name))
        step = row["step"] if change.step is None else span_ms(change.step)
        strict = row["strict"] if change.strict is None else change.strict
        head_start = row["head_start"] if change.head_start is None else span_ms(change.head_start)
        order = rows.queue_order(step, strict, head_start)
        own = change.retention and change.retention.over(before.retention)
        after = await session.row(
            "set_queue",
            name=name,
            step=step,
            strict=strict,
            head_start=head_start,
            offsets=None if order == QueueOrder() else rows.offsets(order),
            paused=change.paused,
            reason=rows.text(change.reason),
            by=rows.text(change.by),
            retention=own and msgspec.json.encode(own).decode(),
            webhook_url=change.webhook_url,
        )
    session.wake(Topic.READY)
    return rows.queue(after)


async def heartbeat(session: Session, worker: WorkerRecord) -> None:
    await session.rows(
        "heartbeat",
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        slots=worker.slots,
        queues=json.dumps(worker.queues),
        types=json.dumps(worker.types),
    )


async def retire(session: Session, worker_id: str) -> None:
    await session.rows("retire", id=worker_id)


async def workers(session: Session) -> list[WorkerRecord]:
    return [_worker(row) for row in await session.rows("workers")]


def _worker(row: rows.Row) -> WorkerRecord:
    id, host, pid, slots, queues, types, started_at, silent = row
    return WorkerRecord(
        id=id,
        host=host,
        pid=pid,
        slots=slots,
        queues=tuple(json.loads(queues)),
        types=tuple(json.loads(types)),
        started_at=from_ms(started_at),
        heartbeat_ago=timedelta(milliseconds=silent),
    )


# API keys


async def add_key(session: Session, key: NewKey) -> ApiKey:
    if session.again and (made := (await find_key(session, key.id)).key) is not None and made.digest == key.digest:
        return made
    row = await session.row(
        "add_key",
        id=key.id,
        digest=key.digest,
        name=key.name,
        scopes=list(key.scopes),
        expires_in=None if key.expires_in is None else span_ms(key.expires_in),
        namespace=key.namespace,
        limits=_limits_text(key.limits),
    )
    return _key(row)


async def list_keys(session: Session) -> KeyList:
    found = await session.rows("keys")
    return KeyList([_key(row) for row in found if row["id"] is not None], from_ms(found[0]["wall"]))


async def find_key(session: Session, id: str) -> KeyLookup:
    row = await session.row("find_key", id=id)
    return KeyLookup(None if row["id"] is None else _key(row), row["any"], from_ms(row["wall"]))


async def revoke_key(session: Session, id: str) -> ApiKey | None:
    row = await session.row("revoke_key", id=id)
    return None if row is None else _key(row)


async def rotate(session: Session, secret: NewSecret) -> ApiKey | None:
    row = await session.row(
        "rotate_key",
        id=secret.id,
        digest=secret.digest,
        overlap=None if secret.overlap is None else span_ms(secret.overlap),
        expires_in=None if secret.expires_in is None else span_ms(secret.expires_in),
    )
    return None if row is None else _key(row)


async def limit(session: Session, id: str, limits: KeyLimits) -> ApiKey | None:
    row = await session.row("limit_key", id=id, limits=_limits_text(limits))
    return None if row is None else _key(row)


async def forget_key(session: Session, id: str) -> bool:
    """Delete a key. On a second try (`session.again`) a key that is gone counts as deleted by the first."""
    forgotten = bool(await session.rows("forget_key", id=id))
    return forgotten or (session.again and (await find_key(session, id)).key is None)


async def use_key(session: Session, id: str, within: int) -> bool:
    return bool(await session.rows("use_key", id=id, within=within))


async def name(session: Session, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
    """Record names that a key uses, under the lock of the key. If it has too many of a kind, roll back and return it."""
    most = {NameKind.QUEUE: limits.max_queues, NameKind.TYPE: limits.max_types}
    asked = [(NameKind.QUEUE, name) for name in sorted(queues)] + [(NameKind.TYPE, name) for name in sorted(types)]
    counted = [(kind, name) for kind, name in asked if most[kind]]
    transaction = session.transaction()
    await transaction.start()
    try:
        too_many = await _name(session, id, counted, most) if await session.rows("lock_key", id=id) else None
    except BaseException:
        await transaction.rollback()
        raise
    await (transaction.commit() if too_many is None else transaction.rollback())
    return too_many


async def _name(
    session: Session, id: str, names: list[tuple[NameKind, str]], most: dict[NameKind, int | None]
) -> NameKind | None:
    kinds, texts = [kind.value for kind, _ in names], [name for _, name in names]
    new = {row["kind"] for row in await session.rows("name_for_key", id=id, kinds=kinds, names=texts)}
    counts = {row["kind"]: row["count"] for row in await session.rows("names_of_key", id=id)}
    return next((kind for kind in NameKind if kind in new and counts[kind] > (most[kind] or 0)), None)


async def waiting(session: Session, id: str, most: int) -> int:
    return int((await session.row("waiting_for_key", id=id, most=most))["count"])


def _key(row: rows.Row) -> ApiKey:
    id, digest, name, scopes, created_at, *times, namespace, limits, former_digest, former_until = row[:12]
    expires_at, revoked_at, last_used_at = (None if at is None else from_ms(at) for at in times)
    return ApiKey(
        id,
        digest,
        name,
        tuple(map(Scope, scopes)),
        from_ms(created_at),
        expires_at,
        revoked_at,
        last_used_at,
        namespace,
        KeyLimits() if limits is None else msgspec.json.decode(limits, type=KeyLimits),
        former_digest,
        None if former_until is None else from_ms(former_until),
    )


def _limits_text(limits: KeyLimits) -> str | None:
    return None if limits == KeyLimits() else msgspec.json.encode(limits).decode()
