"""How long a process waits for its database before it gives up."""

import pytest

from demora import Demora
from demora.errors import StoreUnreachable
from demora.runtime import startup
from tests.servers.ports import free_port


async def test_a_database_that_stays_away_is_an_error_once_patience_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(startup, "START_UP_LIMIT", 1.0)
    monkeypatch.setattr(startup, "FIRST_PAUSE", 0.02)
    with pytest.raises(StoreUnreachable):  # imports the driver, which takes longer than the limit on a busy machine
        await Demora(f"postgresql://nobody@127.0.0.1:{free_port()}/none").open()
    with pytest.raises(StoreUnreachable, match="cannot reach PostgreSQL"):
        async with startup.opened_when_there(Demora(f"postgresql://nobody@127.0.0.1:{free_port()}/none")):
            pytest.fail("there is no such server")
    assert "next try in" in caplog.text
