"""The contestants: where each keeps its jobs, how its worker is started, and what was set other than its defaults."""

from typing import NamedTuple

FILE, POSTGRES, REDIS, POSTGRES_AND_REDIS = "SQLite", "PostgreSQL", "Redis", "PostgreSQL, Redis"


class Contestant(NamedTuple):
    """One row of the table. `worker` and `prepare` are the words behind `python -m`; `{place}` is the URL of the store.

    `module` of this folder enqueues. demora needs no `packages`; without a module the contestant runs on Node.
    """

    name: str
    keeps_in: str
    module: str | None
    worker: tuple[str, ...]
    packages: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    setting: str = "defaults"


_DEMORA = ("demora", "worker", "--app", "bench.rivals.demora:app")
_HUEY = ("huey.bin.huey_consumer", "bench.rivals.huey.huey", "-q")
_PGQUEUER = ("bench.rivals.pgqueuer",)
_ON_POSTGRES = {"packages": ("pgqueuer", "asyncpg"), "prepare": ("pgqueuer", "--pg-dsn", "{place}", "install")}

CONTESTANTS = (
    Contestant("demora on SQLite", FILE, "demora", _DEMORA),
    Contestant("demora on PostgreSQL", POSTGRES, "demora", _DEMORA),
    Contestant("demora with a line", POSTGRES_AND_REDIS, "demora", _DEMORA),
    Contestant("Huey on SQLite", FILE, "huey", _HUEY, ("huey",), setting="`fsync=True`"),
    Contestant("Huey on Redis", REDIS, "huey", _HUEY, ("huey", "redis")),
    Contestant("SAQ", REDIS, "saq", ("saq", "bench.rivals.saq.settings"), ("saq[redis]",)),
    Contestant(
        "Procrastinate",
        POSTGRES,
        "procrastinate",
        ("procrastinate", "--app", "bench.rivals.procrastinate.app", "worker", "--concurrency", "20"),
        ("procrastinate", "psycopg[binary]"),
        prepare=("procrastinate", "--app", "bench.rivals.procrastinate.app", "schema", "--apply"),
        setting="`--concurrency 20`, as many as demora; the default is 1",
    ),
    Contestant("PgQueuer", POSTGRES, "pgqueuer", _PGQUEUER, **_ON_POSTGRES),
    Contestant(
        "PgQueuer, batches of 100",
        POSTGRES,
        "pgqueuer",
        (*_PGQUEUER, "100"),
        **_ON_POSTGRES,
        setting="`batch_size=100`; the default is 10",
    ),
    Contestant(
        "Celery",
        REDIS,
        "celery",
        ("celery", "-A", "bench.rivals.celery", "worker", "--concurrency", "1"),
        ("celery[redis]",),
        setting="`--concurrency 1`, one process",
    ),
    Contestant(
        "Dramatiq",
        REDIS,
        "dramatiq",
        ("dramatiq", "bench.rivals.dramatiq", "--processes", "1"),
        ("dramatiq[redis]",),
        setting="`--processes 1`, with its 8 threads",
    ),
    Contestant("BullMQ", REDIS, None, ("worker",), ("bullmq", "ioredis"), setting="defaults, one job at a time"),
    Contestant(
        "BullMQ, 20 at a time",
        REDIS,
        None,
        ("worker", "20"),
        ("bullmq", "ioredis"),
        setting="`concurrency: 20`, as many as demora; the default is 1",
    ),
)
