"""The commands of an administrator: delete old jobs, refill the line, settle lapsed leases, and verify the database."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..client.bulk import BulkResult
from ..client.client import Client
from ..client.workers.recovery import Recovered
from ..core.states import ENDED
from ..doctor import judge_line
from ..proof import RULES, Findings, HistoryEvent, check, read
from ..wire.queues import recovered_view
from . import output
from .bulk import Sweep, carry_out, confirm, dry_run, yes
from .opening import existing
from .options import SPAN, as_json, asynchronous, in_queue, whole_worker_id
from .output import plain, print_json, rough
from .root import verb

_ENDED = click.Choice([status.name for status in sorted(ENDED)], case_sensitive=False)


@verb("purge")
@click.option("--status", type=_ENDED, required=True, help="The status of the jobs to delete.")
@click.option("--older-than", type=SPAN, required=True, help="Only jobs that ended at least this long ago: 7d.")
@in_queue
@dry_run
@yes
@as_json
@asynchronous
async def purge(status: str, *, older_than: timedelta, queue: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete old ended jobs and expired idempotency keys. The history of the jobs is deleted too."""
    async with existing() as client:
        many = partial(_purge, client, status, older_than=older_than, queue=queue)
        await carry_out(many, Sweep({}, dry_run=dry_run, yes=yes), verb="delete", done="deleted", as_json=as_json)


@verb("rebuild")
@as_json
@asynchronous
async def rebuild(*, as_json: bool) -> None:
    """Refill the Redis line from the database. This also happens by itself after every loss."""
    async with existing() as client:
        epoch = await client.rebuild_line()
    if as_json:
        print_json({"epoch": epoch})
    else:
        click.echo(f"the line is refilled; its epoch is {epoch}")


@verb("recover")
@click.option(
    "--worker", "worker_id", metavar="ID", help="Also take all jobs from this worker, even if its leases still hold."
)
@yes
@as_json
@asynchronous
async def recover(*, worker_id: str | None, yes: bool, as_json: bool) -> None:
    """Settle lapsed leases without running a job. Every worker does the same at its next claim."""
    async with existing() as client:
        if worker_id is not None:
            worker_id = await whole_worker_id(client, worker_id)
            await _confirm_death(client, worker_id, yes=yes)
        recovered = await client.recover()
        recovered += [] if worker_id is None else await client.give_up(worker_id)
    if as_json:
        print_json({"recovered": [recovered_view(job) for job in recovered]})
    else:
        nothing = "there is no lapsed lease to settle"
        if worker_id is not None:
            nothing += f", and {plain(worker_id)} holds no job"
        click.echo("\n".join(map(_line, recovered)) or nothing)


async def _purge(client: Client, status: str, *, limit: None, **options: Any) -> BulkResult:
    """Adapt `Client.purge`, which takes no limit, to `carry_out`."""
    return await client.purge(status, **options)


async def _confirm_death(client: Client, worker_id: str, *, yes: bool) -> None:
    """Ask before the command takes jobs from a worker that seems to be alive: they may run twice at the same time."""
    for worker in await client.registered_workers():
        if worker.id == worker_id and worker.live:
            seen = f"{plain(worker_id)} was seen {rough(worker.heartbeat_ago)} ago"
            words = f"{seen}; if it is still alive, its jobs may run twice at the same time"
            confirm(f"{words}. Take its jobs?", yes=yes, instead=f". {words}")


def _line(job: Recovered) -> str:
    return f"{job.id} was held by {plain(job.worker_id or 'an unknown worker')} and is {job.status.name} now"


# `demora verify`

_MOST = 10  # violations that are printed in full


@verb("verify")
@click.option(
    "--history", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True, help="A history file."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--end-audit", is_flag=True, help="Afterwards, stop the audit and delete its events.")
@click.option("--repair", is_flag=True, help="Correct the Redis line where it differs from the database.")
@asynchronous
async def verify(history: tuple[Path, ...], *, as_json: bool, end_audit: bool, repair: bool) -> None:
    """Check that the database keeps demora's guarantees. Compares jobs, attempts, counts, events and the Redis line.

    Exits with 1 if there is a violation.
    """
    events: list[HistoryEvent] = list(read(*history))
    async with existing() as client:
        findings = check(events, await client.evidence())
        line = list(judge_line(await client.compare_line(repair=repair)))
        if end_audit:
            await client.end_audit()
    if as_json:
        print_json(_view(findings) | ({"line": line} if line else {}))
    else:
        _print(findings)
        for found in line:
            click.echo(f"line: {plain(found.fact)}" + (f" → {plain(found.advice)}" if found.advice else ""))
    if not findings.ok or any(found.level == "problem" for found in line):
        click.get_current_context().exit(1)


def _view(findings: Findings) -> dict[str, object]:
    rules = [
        {"rule": rule, "name": RULES[rule], "judgedBy": by, "whyNot": why, "violations": findings.of(rule)}
        for rule, by, why in _rules(findings)
    ]
    return {"ok": findings.ok, "rules": rules, "violations": findings.violations, "counts": findings.counts}


def _print(findings: Findings) -> None:
    output.rules(
        [
            (rule, RULES[rule], by or f"not judged: {why}", findings.of(rule) if by else None)
            for rule, by, why in _rules(findings)
        ]
    )
    counts, found = findings.counts, len(findings.violations)
    click.echo(f"\njobs: {counts['jobs']}, events: {counts['sql']}, violations: {found or 'none'}")
    for violation in findings.violations[:_MOST]:
        click.echo("\n".join(["", *map(plain, violation.lines())]))
    if found > _MOST:
        click.echo(f"\nand {found - _MOST} more; --json prints all")


def _rules(findings: Findings) -> list[tuple[str, str | None, str | None]]:
    return [(rule, findings.judged.get(rule), findings.not_judged.get(rule)) for rule in RULES]
