"""`demora doctor`: checks everything that can keep jobs from running, and says how to fix it."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from .. import __version__
from ..app import Demora
from ..client.client import Client
from ..doctor import (
    judge_application,
    judge_jobs,
    judge_line,
    judge_paces,
    judge_schedules,
    judge_settings,
    judge_webhooks,
    versions,
)
from ..doctor.schedules import LOOKED_AT, RECORDS_LOOKED_AT, ScheduleHistory
from ..errors import BadSetting, StoreError
from ..store.diagnostics import Finding
from .opening import app_to_look_at, opened, refuse_memory
from .options import as_json
from .output import plain, print_json
from .root import asked_database_url, verb

MOST_SCHEDULES = 200  # that the doctor looks at
_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@verb("doctor")
@click.option("--skip-integrity", is_flag=True, help="Skip the check for damage, which reads the whole file.")
@click.option("--repair", is_flag=True, help="Correct the Redis line where it differs from the database.")
@as_json
def doctor(*, skip_integrity: bool, repair: bool, as_json: bool) -> None:
    """Check everything that can keep jobs from running. Settings, database, Redis line, clock, workers, queues, jobs.

    Neither creates nor migrates a database. Exits with 1 if there is a problem, and with 0 if there are only warnings.
    """
    findings = list(judge_settings(os.environ, database_url=asked_database_url()))
    if all(found.level != "problem" for found in findings):
        app = app_to_look_at()
        findings += judge_application(app.settings.database_url, app.other_database())
        findings += _examined(app, integrity=not skip_integrity, repair=repair)
    findings.append(versions(__version__))
    healthy = all(found.level != "problem" for found in findings)
    if as_json:
        print_json({"ok": healthy, "findings": findings})
    else:
        _print(findings)
    if not healthy:
        click.get_current_context().exit(1)


def _examined(app: Demora, *, integrity: bool, repair: bool) -> list[Finding]:
    try:
        refuse_memory(app)
    except BadSetting as problem:
        return [Finding("database", "problem", str(problem), "correct the database URL")]
    with _spinner("reading the whole database" if integrity else "checking the database"):
        examined = app.examine(integrity=integrity)
        jobs = asyncio.run(_jobs(app, repair=repair)) if examined.usable else []
    return [*examined.findings, *jobs]


async def _jobs(app: Demora, *, repair: bool) -> list[Finding]:
    try:
        async with opened(app) as client:
            overview, queues, workers = await client.overview(), await client.queues(), await client.registered_workers()
            paces, schedulers = await client.pacings(), await client.registered_schedulers()
            secrets, disabled = await client.webhooks.secrets(), await client.webhooks.disabled()
            histories = [history async for history in _histories(client)]
            line = await client.compare_line(repair=repair)
    except BadSetting as problem:
        return [Finding("line", "problem", str(problem), "correct it, or unset DEMORA_REDIS_URL to run without a line")]
    except StoreError as problem:
        return [
            Finding(
                "jobs", "problem", f"the database cannot be used: {problem}", "see the findings about the database above"
            )
        ]
    given = len(app.settings.webhook_secrets)
    webhooks = judge_webhooks(secrets, disabled, queues, given=given)
    schedules = judge_schedules(histories, workers, datetime.now(UTC))
    of_paces = judge_paces(paces, workers, schedulers)
    return [*judge_line(line), *judge_jobs(overview, queues, workers), *of_paces, *schedules, *webhooks]


async def _histories(client: Client) -> AsyncIterator[ScheduleHistory]:
    for stored in await client.schedules(limit=MOST_SCHEDULES):
        name = stored.schedule.name
        records = await client.fire_records(name, limit=RECORDS_LOOKED_AT)
        yield ScheduleHistory(stored, records, (await client.schedule_jobs(name, limit=LOOKED_AT)).jobs)


@contextmanager
def _spinner(words: str) -> Iterator[None]:
    """Show a spinner on a terminal while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


def _print(findings: Sequence[Finding]) -> None:
    for found in findings:
        level = click.style(f"{found.level:<8}", fg=_COLOURS[found.level])
        click.echo(f"{level} {found.check:<13} {plain(found.fact)}")
        if found.advice is not None:
            click.echo(f"{'':<22} → {plain(found.advice)}")
    levels = Counter(found.level for found in findings)
    click.echo(f"\nproblems: {levels['problem'] or 'none'}, warnings: {levels['warning'] or 'none'}")
