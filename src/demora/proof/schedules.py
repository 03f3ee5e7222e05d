"""Judges schedules (I11): one job for each fire time, none before its time, and records that agree with the jobs."""

from collections.abc import Iterator

from ..store.audit import Evidence
from .findings import Fault


def judge(evidence: Evidence) -> Iterator[tuple[str | None, Fault]]:
    """Yield the faults of the jobs of fire times. A clock that was set back leaves the times as they were written."""
    first: dict[tuple[str, int], str] = {}
    records = {(record.schedule, record.slot_at): record for record in evidence.fire_times}
    for job in evidence.jobs:
        if job.schedule is None or job.slot_at is None:
            continue
        fire_time = (job.schedule, job.slot_at)
        earlier = first.setdefault(fire_time, job.id)
        if earlier != job.id:
            yield job.id, ("I11", f"has the fire time {job.slot_at} of schedule {job.schedule}, which job {earlier} has too")
        if job.created_at < job.slot_at:
            yield (
                job.id,
                ("I11", f"was added {job.slot_at - job.created_at} ms before its fire time of schedule {job.schedule}"),
            )
        record = records.get(fire_time)
        if record is not None and record.job != job.id:
            yield job.id, ("I11", f"is not the job on record for its fire time {job.slot_at} of schedule {job.schedule}")
