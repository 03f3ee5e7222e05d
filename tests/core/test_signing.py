"""Signatures of webhooks, held against the official library."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from demora.core.outbound.webhook import PREFIX, Secret, objection, read_secret, secret_text, signed
from demora.errors import Invalid

keys = st.binary(min_size=24, max_size=64)
bodies = st.text().map(str.encode)


@given(keys, bodies)
def test_the_official_library_accepts_what_is_signed(key: bytes, body: bytes) -> None:
    headers = signed("msg_1", body, [Secret(key)], datetime.now(UTC))
    Webhook(secret_text(key)).verify(body, headers, json_parse=False)


@given(st.lists(keys, min_size=1, max_size=3, unique=True), bodies)
def test_each_secret_of_a_rotation_verifies_and_a_stranger_does_not(keys: list[bytes], body: bytes) -> None:
    now = datetime.now(UTC)
    headers = signed("msg_1", body, [Secret(key) for key in keys], now)
    for key in keys:
        Webhook(secret_text(key)).verify(body, headers, json_parse=False)
        assert objection(headers, body, [Secret(key)], now) is None
    stranger = b"s" * 24 if b"s" * 24 not in keys else b"t" * 64
    assert objection(headers, body, [Secret(stranger)], now) == "no signature fits"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(stranger)).verify(body, headers, json_parse=False)


@given(keys, bodies)
def test_what_the_official_library_signed_is_trusted(key: bytes, body: bytes) -> None:
    now = datetime.now(UTC)
    signature = Webhook(secret_text(key)).sign("msg_1", now, body.decode())
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
    assert objection(headers, body, [Secret(key)], now) is None


def test_what_is_old_changed_or_incomplete_is_not_trusted() -> None:
    now, secret = datetime.now(UTC), Secret(b"k" * 24)
    headers = signed("msg_1", b"{}", [secret], now)
    assert objection(headers, b"{}", [secret], now) is None
    assert "5 minutes" in str(objection(headers, b"{}", [secret], now + timedelta(minutes=6)))
    assert objection(headers, b"{ }", [secret], now) == "no signature fits"
    assert objection(headers | {"webhook-id": "msg_2"}, b"{}", [secret], now) == "no signature fits"
    assert objection(headers | {"webhook-timestamp": "soon"}, b"{}", [secret], now) is not None
    for name in headers:
        assert objection({n: v for n, v in headers.items() if n != name}, b"{}", [secret], now) is not None


@given(keys)
def test_a_secret_is_read_as_it_is_written(key: bytes) -> None:
    assert read_secret(secret_text(key)) == Secret(key)
    assert read_secret(secret_text(key).rstrip("=")) == Secret(key)


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_c2hvcnQ=", "whsec_****", "secret", PREFIX + "A" * 200, "WHSEC_" + "A" * 32]
)
def test_what_is_no_secret_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_secret(text)
    assert not text.removeprefix(PREFIX) or text.removeprefix(PREFIX) not in str(refused.value) or text == "secret"


def test_a_secret_shows_nothing_of_itself() -> None:
    secret = Secret(b"canary" * 5)
    assert "canary" not in f"{secret!r} {secret} {[secret]}"
