"""Whether a filter means jobs of demora's own."""

import pytest

from demora.core import action
from demora.core.action import means_own
from demora.core.filters import JobFilter
from demora.core.outbound import webhook


@pytest.mark.parametrize("own", [action, webhook], ids=["actions", "webhooks"])
def test_a_filter_that_names_a_queue_or_type_of_demoras_own_means_its_jobs(own: object) -> None:
    assert means_own(JobFilter(queue=own.QUEUE))  # type: ignore[attr-defined]
    assert means_own(JobFilter(type=own.TYPE))  # type: ignore[attr-defined]
    assert means_own(JobFilter(queue="default", type=own.TYPE))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "filter", [JobFilter(), JobFilter(queue="default"), JobFilter(type="a.b"), JobFilter(type="demora.*")]
)
def test_another_filter_means_the_jobs_of_callers(filter: JobFilter) -> None:
    assert not means_own(filter)
