"""`demora worker --metrics-port`: a real port, which answers while the worker runs and also while its loop is blocked."""

import contextlib
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from demora import Demora
from demora.errors import CannotListen, MetricsNotInstalled
from demora.metrics import endpoint
from demora.metrics.endpoint import Endpoint
from demora.metrics.measured import Measured
from demora.runtime.measuring import service_metrics, worker_metrics
from demora.settings import Settings
from tests.hostile.commands import demora, running
from tests.metrics.scraping import Samples, named, scraped

JOBS = """
import threading
from demora import Demora

app = Demora()

@app.job("blocks")
async def blocks() -> None:
    print("blocking", flush=True)
    threading.Event().wait()
"""


def get(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return scraped(answer.read().decode())


@contextlib.contextmanager
def serving(measured: Measured) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener, Endpoint(listener, measured):
        yield listener.getsockname()


def test_the_port_answers_at_one_path_until_the_block_ends() -> None:
    measured = Measured()
    measured.claimed(0.1)
    with serving(measured) as (host, port):
        assert get(f"http://{host}:{port}/metrics")["demora_claim_seconds_count"] == 1
        for path in ("/", "/metrics/x"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(f"http://{host}:{port}{path}")
    with pytest.raises(urllib.error.URLError):
        get(f"http://{host}:{port}/metrics")


def test_a_caller_that_sends_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 0.05)
    with serving(Measured()) as address, socket.create_connection(address, timeout=30) as idle:
        assert get("http://{}:{}/metrics".format(*address))["demora_leases_lost_total"] == 0
        assert idle.recv(1) == b""


def test_without_the_extra_a_port_is_refused_and_a_service_has_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("endpoint", "measured", "service"):
        monkeypatch.delitem(sys.modules, f"demora.metrics.{module}")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with (
        pytest.raises(MetricsNotInstalled, match=r"pip install 'demora\[metrics\]'"),
        worker_metrics(Settings(metrics_port=0)),
    ):
        pass
    assert service_metrics() is None


def test_a_port_that_is_taken_is_refused_with_the_option_to_change() -> None:
    option = "--metrics-port or DEMORA_METRICS_PORT"
    with (
        serving(Measured()) as (_, port),
        pytest.raises(CannotListen, match=option),
        worker_metrics(Settings(metrics_port=port)),
    ):
        pass


def test_without_a_port_nothing_is_measured() -> None:
    with worker_metrics(Settings()) as measured:
        assert measured is None


@pytest.mark.slow
async def test_a_worker_names_its_port_and_shows_what_it_did_even_while_a_handler_blocks_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(JOBS)
    async with Demora(f"sqlite:///{tmp_path}/demora.db") as app:
        done = await app.enqueue("demo.echo")
        with running(tmp_path, "worker", "--app", "shop:app", "--metrics-port", "0") as worker:
            url = worker.until("metrics at ").split()[-1]
            assert url.startswith("http://127.0.0.1:")
            worker.until(" started: ")
            await app.wait(done.id, timedelta(seconds=60))
            await app.enqueue("blocks")
            worker.until("blocking")
            found = get(url)
    assert found[named("demora_jobs_settled_total", queue="default", type="demo.echo", outcome="completed")] == 1
    assert (found["demora_worker_slots"], found["demora_worker_busy_slots"]) == (20, 1)


@pytest.mark.slow
def test_several_processes_cannot_share_a_port(tmp_path: Path) -> None:
    refused = demora(tmp_path, "worker", "--processes", "2", "--metrics-port", "9101")
    assert refused.returncode == 2
    assert "a metrics port is for one process" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("value", ["65536", "-1"])
def test_a_port_out_of_bounds_is_refused(tmp_path: Path, value: str) -> None:
    refused = demora(tmp_path, "worker", DEMORA_METRICS_PORT=value)
    assert refused.returncode == 1
    assert "DEMORA_METRICS_PORT: must be from 0 to 65535" in refused.stderr
