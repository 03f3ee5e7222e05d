"""Requests that wait: half of the connections may, and half of these for one key."""

from datetime import UTC, datetime

import pytest

from demora.api.stopping import Stopping
from demora.api.waiting import WaitLimit
from demora.core.access import ApiKey, Scope
from demora.wire.problems import TooManyWaits


def key(id: str) -> ApiKey:
    return ApiKey(id=id, name=id, digest=b"", scopes=(Scope.READ,), created_at=datetime(2030, 1, 1, tzinfo=UTC))


def test_half_of_the_connections_may_wait() -> None:
    waits = WaitLimit(20)
    places = [waits.take(None) for _ in range(10)]
    with pytest.raises(TooManyWaits):
        waits.take(None)
    places[0].leave()
    places[0].leave()  # counts once
    waits.take(None)
    with pytest.raises(TooManyWaits, match="half of DEMORA_HTTP_CONNECTIONS"):
        waits.take(None)


def test_one_key_may_have_half_of_the_places() -> None:
    waits = WaitLimit(20)
    with waits.take(key("a")):
        for _ in range(4):
            waits.take(key("a"))
        with pytest.raises(TooManyWaits, match="of this API key"):
            waits.take(key("a"))
        for _ in range(4):
            waits.take(key("b"))
    waits.take(key("a"))


async def test_what_is_called_when_the_service_stops_is_called_once_and_only_within_its_block() -> None:
    stopping, called = Stopping(), list[str]()
    with stopping.calling(lambda: called.append("before")):
        pass
    with stopping.calling(lambda: called.append("within")):
        stopping.stop()
    with stopping.calling(lambda: called.append("after")):
        pass
    assert called == ["within", "after"]
