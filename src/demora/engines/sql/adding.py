"""Rules of an add that both engines follow: which jobs are stored for certain, and the answers to repeated requests."""

from collections.abc import Iterable, Sequence

from ...core.job import NewJob
from ...store.jobs import Added


def is_plain(job: NewJob) -> bool:
    """Whether a job is stored for certain: it has no key that could belong to an earlier one."""
    return job.key is None and job.unique is None


def replay(first: Added, *, same: bool) -> Added:
    """Return the answer to a used idempotency key: the first job if the request is the `same`, else a conflict."""
    return Added(first.id, first.created_at, first.scheduled_at, replayed=same, conflict=not same)


def with_stored(answers: Iterable[Added | None], fresh: Sequence[NewJob], stored: Sequence[Added]) -> list[Added]:
    """Return the answers of a call, with those to its `fresh` jobs where there is none yet.

    A job that repeats a fresh one of the same call gets the answer to that one, which may name a unique job that was
    waiting already.
    """
    in_turn = iter(stored)
    first_of = {job.id: answer for job, answer in zip(reversed(fresh), reversed(stored), strict=True)}
    return [next(in_turn) if answer is None else replay(first_of.get(answer.id, answer), same=True) for answer in answers]
