"""Commands that housekeep up: old jobs that ended, and what dead workers left behind."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..client.bulk import BulkResult
from ..client.client import Client
from ..client.recovery import Recovered
from ..client.views import recovered_view
from ..client.why import LIVE_WITHIN
from ..core.states import ENDED
from ..doctor import judge_line
from ..proof import RULES, Event, Findings, check, read
from . import output
from .jobs import Sweep, carry_out, confirm, dry_run, yes
from .opening import existing
from .options import SPAN, as_json, asynchronous, in_queue
from .output import plain, print_json, rough
from .root import verb

_ENDED = click.Choice([status.name for status in sorted(ENDED)], case_sensitive=False)


@verb("purge")
@click.option("--status", type=_ENDED, required=True, help="How the jobs ended.")
@click.option("--older-than", type=SPAN, required=True, help="How long ago they ended, at least: 7d.")
@in_queue
@dry_run
@yes
@as_json
@asynchronous
async def purge(status: str, *, older_than: timedelta, queue: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete jobs that ended long ago, with their history, and idempotency keys that expired."""
    async with existing() as client:
        many = partial(_purge, client, status, older_than=older_than, queue=queue)
        await carry_out(many, Sweep({}, dry_run=dry_run, yes=yes), verb="delete", done="deleted", as_json=as_json)


@verb("rebuild")
@as_json
@asynchronous
async def rebuild(*, as_json: bool) -> None:
    """Fill the Redis line anew from the database, as it does by itself whenever it has to."""
    async with existing() as client:
        epoch = await client.rebuild_line()
    if as_json:
        print_json({"epoch": epoch})
    else:
        click.echo(f"the line was filled anew, under the number {epoch}")


@verb("recover")
@click.option("--worker", "worker_id", metavar="ID", help="Take all jobs from this worker, whether or not its leases hold.")
@yes
@as_json
@asynchronous
async def recover(*, worker_id: str | None, yes: bool, as_json: bool) -> None:
    """Settle leases that have lapsed, as the next claim of any worker does, and run nothing."""
    async with existing() as client:
        if worker_id is not None:
            await _confirm_death(client, worker_id, yes=yes)
        recovered = await client.recover()
        recovered += [] if worker_id is None else await client.give_up(worker_id)
    if as_json:
        print_json({"recovered": [recovered_view(job) for job in recovered]})
    else:
        nothing = "no lease has lapsed that is not settled"
        if worker_id is not None:
            nothing += f", and {plain(worker_id)} holds no job"
        click.echo("\n".join(map(_said, recovered)) or nothing)


async def _purge(client: Client, status: str, *, limit: None, **options: Any) -> BulkResult:
    """A purge as one of the verbs on many jobs; it takes no limit."""
    return await client.purge(status, **options)


async def _confirm_death(client: Client, worker_id: str, *, yes: bool) -> None:
    """Ask before a worker that seems to be alive is declared dead: its jobs may then run twice at the same time."""
    for worker in await client.registered_workers():
        if worker.id == worker_id and worker.heartbeat_ago < LIVE_WITHIN:
            seen = f"{plain(worker_id)} was heard of {rough(worker.heartbeat_ago)} ago"
            words = f"{seen}; if it is alive its jobs may run twice at the same time"
            confirm(f"{words}. Take them?", yes=yes, instead=f". {words}")


def _said(job: Recovered) -> str:
    return f"{job.id} was held by {plain(job.worker_id or 'nobody')} and is {job.status.name} now"


# `demora verify`: hold the database to the promises, and say what could be judged.


_MOST = 10  # violations that are told in full


@verb("verify")
@click.option("--history", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True, help="A history.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--end-audit", is_flag=True, help="Afterwards stop the audit and forget its events.")
@click.option("--repair", is_flag=True, help="Bring the Redis line in step with the database where it is not.")
@asynchronous
async def verify(history: tuple[Path, ...], *, as_json: bool, end_audit: bool, repair: bool) -> None:
    """Check that jobs, attempts, counts, events and the Redis line agree with what demora promises. Exit with 1 if not."""
    events: list[Event] = list(read(*history))
    async with existing() as client:
        findings = check(events, await client.evidence())
        line = list(judge_line(await client.compare_line(repair=repair)))
        if end_audit:
            await client.end_audit()
    if as_json:
        print_json(_view(findings) | ({"line": line} if line else {}))
    else:
        _tell(findings)
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


def _tell(findings: Findings) -> None:
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
        click.echo(f"\nand {found - _MOST} more; --json has all")


def _rules(findings: Findings) -> list[tuple[str, str | None, str | None]]:
    return [(rule, findings.judged.get(rule), findings.not_judged.get(rule)) for rule in RULES]
