"""The one form of all histories: what is written is read back, whoever wrote it and however it ended."""

import json
import multiprocessing
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from demora.proof import ClientEvent, HistoryEvent, Recorder, WorldEvent, lives, read, write
from demora.store.audit import JobStep, SqlEvent
from tests.proof.lives import JOB, START, Life, call, end, start

HISTORY: list[HistoryEvent] = [
    *Life().added().claimed().cancel_requested().stale("renew", 1).settled().events,
    *call("add", "ok", JOB, asked={"key": "k", "request": "r", "kept": 5, "due_at": START}),
    *(start(worker="ann", attempt=1), end()),
    *(WorldEvent("kill -9", START, "worker 3"), WorldEvent("healed", START)),
]


def test_every_kind_of_event_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "h.jsonl", HISTORY)
    assert list(read(tmp_path / "h.jsonl")) == HISTORY


@pytest.mark.parametrize("kind", get_args(JobStep))
def test_every_step_of_a_job_is_read_back_and_judged(tmp_path: Path, kind: JobStep) -> None:
    write(tmp_path / "h.jsonl", [SqlEvent(1, START, START, JOB, kind)])
    assert [event.kind for event in read(tmp_path / "h.jsonl")] == [kind]
    assert kind in lives.JUDGES


def test_only_steps_that_histories_know_are_judged() -> None:
    assert set(lives.JUDGES) == set(get_args(JobStep))


def test_a_line_says_who_saw_it(tmp_path: Path) -> None:
    write(tmp_path / "h.jsonl", HISTORY)
    lines = (tmp_path / "h.jsonl").read_text().splitlines()
    assert {json.loads(line)["source"] for line in lines} == {"sql", "client", "handler", "world"}


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write(path, HISTORY)
    path.write_bytes(path.read_bytes()[:-7])
    assert list(read(path)) == HISTORY[:-1]


def test_a_line_that_is_no_event_is_refused(tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_text('{"source":"client","kind":"perhaps"}\n')
    with pytest.raises(msgspec.ValidationError):
        list(read(tmp_path / "h.jsonl"))


def record_some(path: Path, who: str) -> None:
    recorder = Recorder(path)
    for n in range(500):
        recorder.record(ClientEvent("invoke", "add", f"{who}-{n}", n, (JOB,) * (n % 7)))
    recorder.close()


@pytest.mark.slow
def test_several_processes_write_one_history(tmp_path: Path) -> None:
    path, context = tmp_path / "h.jsonl", multiprocessing.get_context("spawn")
    writers = [context.Process(target=record_some, args=(path, str(n))) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len({event.call for event in read(path) if isinstance(event, ClientEvent)}) == 1500


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    write(tmp_path / "a", HISTORY[:3])
    write(tmp_path / "b", HISTORY[3:])
    assert list(read(tmp_path / "a", tmp_path / "b")) == HISTORY
