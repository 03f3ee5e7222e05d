"""rediss://: the line behind TLS, with a certificate of one's own making."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from demora.core.job import Lane, Priority
from demora.line.port import LineAway
from demora.line.redis import RedisLine
from demora.store.line_feed import Place
from tests.servers import valkey
from tests.servers.ports import free_port
from tests.setups import redis_url

NOW = 1_000_000
SUBJECT = ("-subj", "/CN=demora", "-addext", "subjectAltName=IP:127.0.0.1")


class Secured:
    """A server that also speaks TLS, and the certificate to know it by."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.url, self.certificate = f"rediss://127.0.0.1:{port}/0", certificate


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    redis_url()
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    certificate, key, port = tmp_path / "server.crt", tmp_path / "server.key", free_port()
    make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *SUBJECT)
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate))
    try:
        server = valkey.Server("--tls-port", str(port), "--tls-auth-clients", "no", *files)
    except RuntimeError:
        pytest.skip("this server program has no TLS: DEMORA_TEST_VALKEY=<program> names another")
    try:
        yield Secured(port, certificate)
    finally:
        server.close()


async def test_a_line_behind_tls_is_used_as_any_other(secured: Secured) -> None:
    line = RedisLine(f"{secured.url}?ssl_ca_certs={secured.certificate}")
    try:
        await line.connect("db")
        await line.begin(1)
        await line.listen(lambda: None)
        await line.put([Place("a", "q", Lane.REALTIME, Priority.NORMAL, NOW)], now=NOW)
        taken = await line.take(None, 1, now=NOW, stale=0)
        assert [entry.id for entry in taken.entries] == ["a"]
    finally:
        await line.close()


async def test_a_certificate_without_a_known_issuer_is_refused(secured: Secured) -> None:
    line = RedisLine(secured.url)
    try:
        with pytest.raises(LineAway, match=r"(?i)certificate"):
            await line.connect("db")
    finally:
        await line.close()
