"""`demora pace` and `demora why`."""

import getpass
import re
from collections.abc import Callable

from tests.builders import NO_SUCH_ID
from tests.cli.conftest import Run, answer, work_off


def test_a_pace_is_set_shown_and_taken_off(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued()
    assert "mail has no pace" in run("pace", "mail").stdout
    set_ = run("pace", "mail", "--gap", "2m", "--burst", "3", "--stagger", "30s")
    assert "3 in 2m, 30s apart; governs both" in set_.stdout
    assert f"by cli:{getpass.getuser()}" in set_.stdout
    assert "pace            3 in 2m, 30s apart" in run("queue", "mail").stdout
    assert "mail has no pace" in run("pace", "mail", "--off").stdout
    history = run("pace", "mail", "--history").stdout
    assert history.count(f"cli:{getpass.getuser()}") == 2
    assert ": off\n" in history


def test_the_list_of_queues_and_the_doctor_tell_of_a_pace(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued("demo.echo", "--queue", "mail")
    enqueued("demo.echo", "--queue", "web")
    run("pace", "mail", "--gap", "2m", "--burst", "3")
    heads, mail, web = run("queues").stdout.splitlines()
    at = heads.index("PACE")
    assert (mail[at:].strip(), web[at:].strip()) == ("3 in 2m", "")
    assert "queue mail has a pace, 3 in 2m: 0 jobs due and not released yet" in run("doctor").stdout


def test_a_queue_that_is_taken_off_before_there_is_a_pace_is_left_out(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued()
    assert "mail has no pace; demora pace mail --gap" in run("pace", "mail").stdout
    said = "mail has no pace, even if all queues get one; demora pace mail --default makes it follow that one again"
    assert said in run("pace", "mail", "--off").stdout
    run("pace", "*", "--gap", "2m")
    assert said in run("pace", "mail").stdout
    assert "3 in 2m" in run("pace", "mail", "--default").stdout


def test_as_json_it_has_the_figures_and_the_changes(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued("demo.echo", "--queue", "mail", "--delay", "1h")
    shown = answer(run("pace", "mail", "--no-rapid", "--governs", "retries", "--protect", "web", "--json"))
    assert (shown["queue"], shown["pace"]["rapid"], shown["pace"]["governs"]) == ("mail", None, "retries")
    assert (shown["pace"]["protect"], shown["pace"]["totalDelayed"], len(shown["changes"])) == (["web"], 0, 1)


def test_it_says_what_the_pace_did(run: Run, enqueued: Callable[..., str]) -> None:
    run("migrate")
    run("pace", "mail", "--gap", "2m", "--burst", "1")
    ids = enqueued("demo.echo", "--queue", "mail", "--delay", "1ms"), enqueued("demo.echo", "--queue", "mail")
    assert "last hour       0 released\n" in run("pace", "mail").stdout
    work_off(*ids)
    shown = run("pace", "mail").stdout
    assert re.search(
        r"last hour +1 released, held .+ \(p50\), .+ \(p99\), .+ \(most\); real-time jobs waited .+ \(p50\)", shown
    )
    effect = answer(run("pace", "mail", "--json"))["pace"]["history"]["lastDay"]
    assert (effect["released"], effect["held"]["count"], effect["realTimeWait"]["count"]) == (1, 1, 1)
    [listed] = answer(run("queues", "--json"))["queues"]
    assert listed["pace"]["history"]["lastDay"] == effect


def test_off_goes_alone_and_bad_values_are_told(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued()
    assert run("pace", "mail", "--off", "--burst", "3").exit_code == 2
    refused = run("pace", "mail", "--burst", "0")
    assert refused.exit_code == 2
    assert "Invalid value for '--burst': must be a whole number from 1 to 10000" in refused.stderr
    refused = run("pace", "mail", "--rapid-burst", "0")
    assert refused.exit_code == 2
    assert "Invalid value for '--rapid-burst': " in refused.stderr


def test_a_pace_is_complete_by_itself(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued()
    assert "pace            1 in 10s; governs both" in run("pace", "mail", "--gap", "10s", "--burst", "1").stdout
    assert "pace            5 in 10s, 2s apart; governs both" in run("pace", "mail", "--burst", "5").stdout
    refused = run("pace", "mail", "--stagger", "3s")
    said = "Invalid value for '--stagger': 5 releases 3s apart take 15s, longer than the gap of 10s; at most 2s fits"
    assert (refused.exit_code, said in refused.stderr) == (2, True)
    assert "5 in 10s, 2s apart; rapid 5 in 30s, 6s apart; " in run("pace", "mail", "--rapid").stdout
    assert "5 in 10s, 1s apart" in run("pace", "mail", "--stagger", "1s").stdout
    assert "5 in 10s, 2s apart" in run("pace", "mail", "--stagger", "fit", "--no-rapid").stdout


def test_all_queues_without_a_pace_get_one(run: Run, enqueued: Callable[..., str]) -> None:
    enqueued("demo.echo", "--queue", "mail", "--delay", "1h")
    enqueued("demo.echo", "--queue", "web")
    assert "pace            5 in 3m, 30s apart; governs both\n" in run("pace", "*", "--gap", "3m", "--burst", "5").stdout
    assert "30s apart; governs both, the pace of all queues\n" in run("pace", "mail").stdout
    heads, every, mail = run("pace").stdout.splitlines()
    assert heads.split() == ["QUEUE", "PACE", "DELAYED", "READY", "NOW", "IN", "HOUR", "FOR", "GAP", "NEXT", "LAST"]
    assert (every.split(), mail.split()[:8]) == (["*", "5", "in", "3m"], ["mail", "5", "in", "3m", "1", "0", "1", "0"])
    shown = answer(run("pace", "--json"))["queues"]
    assert [(one["queue"], one["pace"]["inherited"]) for one in shown] == [("*", False), ("mail", True)]
    said = run("doctor", "--skip-integrity").stdout
    assert f"queues without a pace of their own follow the default, 5 in 3m, set by cli:{getpass.getuser()}" in said
    assert "queue mail follows the pace of all queues, 5 in 3m: 0 jobs due and not released yet" in said
    assert "web has no pace" in run("pace", "web", "--off").stdout
    assert "30s apart; governs both, the pace of all queues\n" in run("pace", "web", "--default").stdout
    assert run("pace", "web", "--history").stdout.splitlines()[-2].endswith(": default")
    assert "cannot follow" in run("pace", "*", "--default").stderr
    assert run("pace", "web", "--default", "--off").exit_code == 2
    assert run("pace", "--off").exit_code == 2


def test_why_is_one_sentence(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.echo", "--delay", "1h")
    said = run("why", id).stdout
    assert said.startswith("It is not due until ")
    assert said.count("\n") == 1
    assert answer(run("why", id, "--json"))["reason"] == "not_due"
    assert run("why", NO_SUCH_ID).exit_code == 1
