"""The page about Litestar and Quart, under a real server and with a real worker. `test_docs.py` runs its Python too."""

import re
import shlex
import time
from pathlib import Path

import pytest

from tests.contrib.processes import LOOK, calling, running
from tests.servers.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "other-frameworks.md"
RESULTS = {"litestar_shop": "sent to a@b.c", "quart_shop": "sent to a@b.c by shop@example.com"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_a_mail_is_sent_by_a_worker(name: str, tmp_path: Path) -> None:
    text, port, output = PAGE.read_text(), free_port(), tmp_path / "output"
    [code] = re.findall(rf"^```python\n(# {name}\.py\n.*?)^```$", text, re.M | re.S)
    (tmp_path / f"{name}.py").write_text(code)
    [web, worker] = [shlex.split(line) for line in re.findall(rf"^(?:uvicorn|demora) .*{name}:.*$", text, re.M)]
    with (
        running(tmp_path, *web, "--port", str(port), output=output) as server,
        running(tmp_path, *worker, output=output) as working,
        calling(port, server, output) as http,
    ):
        id = http.post("/mails", json={"to": "a@b.c"}).json()["job"]
        until = time.monotonic() + 60
        while (job := http.get(f"/jobs/{id}").json())["status"] != "COMPLETED":
            assert time.monotonic() < until, output.read_text()
            time.sleep(LOOK)
        assert job["result"] == RESULTS[name]
        assert http.get("/jobs/01a1e11f").status_code == 404
    assert working.returncode == 0, output.read_text()
    assert "Traceback" not in output.read_text()
