"""`demora verify`: hold the database to the promises, and say what could be judged."""

from pathlib import Path

import click

from ..doctor import judge_line
from ..proof import RULES, Event, Findings, check, read
from . import tables
from .opening import existing
from .options import asynchronous
from .root import verb
from .text import plain
from .wire import print_json

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
    tables.rules(
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
