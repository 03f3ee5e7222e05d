"""Commands that act: each verb on jobs and queues, several ids at once, and what they say when refused."""

from collections.abc import Callable

import pytest

from tests.builders import NO_SUCH_ID
from tests.cli.conftest import Run, answer, work_off


def status(run: Run, id: str) -> str:
    found: str = answer(run("job", id, "--json"))["status"]
    return found


def test_cancel_takes_several_ids(run: Run, enqueued: Callable[..., str]) -> None:
    ids = [enqueued(), enqueued()]
    assert run("cancel", *ids).stdout == "".join(f"{id} is CANCELLED\n" for id in ids)
    assert [status(run, id) for id in ids] == ["CANCELLED", "CANCELLED"]


def test_one_refusal_does_not_keep_the_others_from_happening(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued()
    result = run("cancel", NO_SUCH_ID, id)
    assert (result.exit_code, result.stderr) == (1, f"error: no job has the id {NO_SUCH_ID}\n")
    assert status(run, id) == "CANCELLED"


def test_an_ended_job_cannot_be_cancelled(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued()
    work_off(id)
    refused = run("cancel", id)
    assert refused.exit_code == 1
    assert f"error: cannot cancel job {id}: it is COMPLETED" in refused.stderr


def test_retry_runs_a_dead_letter_again(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.fail", "--max-retries", "0")
    work_off(id)
    assert run("retry", id).stdout == f"{id} is QUEUED again\n"
    assert answer(run("dead-letters", "--json"))["jobs"] == []
    assert run("retry", id).exit_code == 1


def test_delete_removes_an_ended_job_only(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued()
    assert run("delete", id).exit_code == 1
    run("cancel", id)
    assert run("delete", id).stdout == f"{id} is deleted\n"
    assert run("job", id).exit_code == 1


def test_reschedule_changes_time_and_priority_and_keeps_the_id(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued()
    assert run("reschedule", id, "--delay", "3d", "--priority", "low").stdout == f"{id} is due in 3d, priority LOW\n"
    run("reschedule", id, "--at", "2099-01-31T09:00:00Z")
    job = answer(run("job", id, "--json"))
    assert (job["scheduledAt"], job["priority"]) == ("2099-01-31T09:00:00.000Z", "LOW")


def test_reschedule_without_a_change_is_a_usage_error(run: Run, enqueued: Callable[..., str]) -> None:
    assert run("reschedule", enqueued()).exit_code == 2


def test_a_paused_queue_hands_out_nothing_until_resumed(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.echo", "--queue", "mail")
    assert run("pause", "mail").stdout == "mail is paused; demora resume mail resumes it\n"
    work_off(enqueued())
    assert status(run, id) == "QUEUED"
    assert run("resume", "mail").stdout == "mail is resumed\n"
    work_off(id)
    assert status(run, id) == "COMPLETED"


def test_a_queue_that_was_not_paused_or_is_not_there_is_named_as_such(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued("demo.echo", "--queue", "mail")
    assert run("resume", "mail").stdout == "mail was not paused\n"
    refused = run("resume", "mial")
    assert (refused.exit_code, refused.stderr) == (1, "error: there is no queue mial; demora queues lists them\n")
    assert [queue["name"] for queue in answer(run("queues", "--json"))["queues"]] == ["mail"]


def test_a_queue_that_is_paused_before_its_first_job_is_said_to_be_new(run: Run) -> None:
    run("migrate")
    new = "mial is paused; the queue is new, check the name; demora resume mial resumes it\n"
    assert run("pause", "mial").stdout == new
    assert run("pause", "mial").stdout == "mial is paused; demora resume mial resumes it\n"


def test_a_queue_paused_again_keeps_its_reason(run: Run) -> None:
    run("migrate")
    run("pause", "mail", "--reason", "the server is down")
    assert answer(run("pause", "mail", "--json"))["pauseReason"] == "the server is down"


def test_what_a_queue_keeps_can_be_left_to_the_settings_again(run: Run) -> None:
    run("migrate")
    assert answer(run("queue", "mail", "--keep-failed", "9", "--json"))["keepFailed"] == "9"
    assert "keep failed     as in the settings" in run("queue", "mail", "--keep-failed", "general").stdout
    assert run("queue", "mial").stderr == "error: there is no queue mial; demora queues lists them\n"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_queue_with_a_malformed_name_is_refused(run: Run, verb: str) -> None:
    run("migrate")
    refused = run(verb, "no/such queue")
    assert refused.exit_code == 2
    assert "Invalid value for 'QUEUE': a queue is named with" in refused.stderr


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete"])
def test_a_verb_without_ids_is_a_usage_error(run: Run, verb: str) -> None:
    assert run(verb).exit_code == 2


def test_a_verb_on_many_jobs_takes_a_search(run: Run, enqueued: Callable[..., str]) -> None:
    wanted, kept = enqueued("email.send", "--priority", "LOW"), enqueued("email.send")
    done = answer(run("cancel", "--search", "type:email.* priority:low", "--yes", "--json"))
    assert (done["matched"], done["done"]) == (1, 1)
    statuses = {job["id"]: job["status"] for job in answer(run("jobs", "--json"))["jobs"]}
    assert statuses == {wanted: "CANCELLED", kept: "QUEUED"}
    assert "takes jobs that are" in run("cancel", "--search", "status:failed", "--yes").stderr
