"""`--reload`: a worker and a service that restart when the code changes."""

import signal
from pathlib import Path

import pytest

from demora.runtime.reloading import changed, snapshot
from tests.cli.conftest import Run, Start, answer, read_until

SHOP = 'from demora import Demora\napp = Demora()\n@app.job("version")\ndef version() -> int:\n    return {}\n'
DEADLINE = 30.0


@pytest.mark.slow
@pytest.mark.parametrize("words", [("worker",), ("serve", "--port", "0")], ids=lambda words: words[0])
def test_a_change_restarts_the_process_with_new_code(run: Run, start: Start, folder: Path, words: tuple[str, ...]) -> None:
    (folder / "shop.py").write_text(SHOP.format(1))
    process = start(*words, "--app", "shop:app", "--reload")
    read_until(process, " slots, queues all")
    assert run("enqueue", "version", "--wait").stdout.splitlines()[-1] == "COMPLETED 1"
    (folder / "shop.py").write_text(SHOP.format("1 +"))
    said = read_until(process, "it starts again when a file changes")
    assert "shop.py has changed: restarting" in said
    (folder / "shop.py").write_text(SHOP.format(22))
    read_until(process, " slots, queues all")
    assert run("enqueue", "version", "--wait").stdout.splitlines()[-1] == "COMPLETED 22"
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0
    assert answer(run("workers", "--json")) == {"workers": []}


@pytest.mark.slow
def test_a_process_ends_when_its_reloader_is_killed(run: Run, start: Start, folder: Path) -> None:
    process = start("worker", "--reload")
    read_until(process, " slots, queues all")
    process.kill()
    said = read_until(process, "stopped")
    assert "the supervisor of this worker is gone" in said


def test_several_processes_are_not_reloaded(run: Run) -> None:
    assert run("worker", "--reload", "--processes", "2").exit_code == 2


def test_code_and_settings_count_and_virtual_environments_do_not(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    for name in (".hidden", "env", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lib.py").touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    before = snapshot(tmp_path)
    assert before == {}
    counted = [tmp_path / "demora.toml", tmp_path / "pack" / "new.py"]
    for path in [*counted, tmp_path / "notes.txt"]:
        path.touch()
    after = snapshot(tmp_path)
    assert changed(before, after) == changed(after, before) == [str(path) for path in counted]
    assert changed(after, after) == []
