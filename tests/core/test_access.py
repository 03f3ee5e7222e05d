"""Keys and scopes: who may do what, decided without a store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from demora.core.access import ApiKey, Presented, Scope, accepts, check_scopes, key_text, make_key, present
from demora.errors import Invalid

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TEXT = key_text("abcdefghijk1", "s" * 43)
ALLOWED = {"submit": {"submit"}, "read": {"read"}, "operate": {"read", "operate"}, "work": {"work"}, "admin": set(Scope)}


def key(**changes: Any) -> ApiKey:
    presented = claim()
    return ApiKey(**{**fields(presented), **changes})


def fields(presented: Presented) -> dict[str, Any]:
    return {**msgspec.structs.asdict(presented), "name": "ci", "scopes": (Scope.READ,), "created_at": NOW}


def claim(text: str = TEXT) -> Presented:
    presented = present(text)
    assert presented is not None
    return presented


@pytest.mark.parametrize("given", Scope)
@pytest.mark.parametrize("needed", Scope)
def test_a_scope_allows_what_it_includes_and_nothing_else(given: Scope, needed: Scope) -> None:
    assert key(scopes=(given,)).allows(needed) == (needed in ALLOWED[given])


def test_the_scopes_of_a_key_add_up() -> None:
    both = key(scopes=(Scope.SUBMIT, Scope.READ))
    assert [scope for scope in Scope if both.allows(scope)] == [Scope.SUBMIT, Scope.READ]


def test_the_very_key_is_accepted_and_no_other() -> None:
    assert accepts(key(), claim(), NOW)
    assert not accepts(key(), claim(TEXT[:-1] + "t"), NOW)
    assert not accepts(None, claim(), NOW)
    assert not accepts(None, Presented("abcdefghijk1", bytes(32)), NOW)


def test_a_key_ends_at_its_expiry_and_with_its_revocation() -> None:
    expiring = key(expires_at=NOW + HOUR)
    assert accepts(expiring, claim(), NOW + HOUR - timedelta.resolution)
    assert not accepts(expiring, claim(), NOW + HOUR)
    assert not accepts(key(revoked_at=NOW), claim(), NOW)
    assert [one.state(NOW + HOUR) for one in (key(), expiring, key(revoked_at=NOW))] == ["in force", "expired", "revoked"]


def test_a_use_is_to_be_noted_once_a_minute() -> None:
    assert key().use_to_be_noted(NOW)
    used = key(last_used_at=NOW)
    assert not used.use_to_be_noted(NOW + timedelta(seconds=59))
    assert used.use_to_be_noted(NOW + timedelta(seconds=60))


@pytest.mark.parametrize(
    "text",
    ["", "dmr", "dmr__", TEXT[:-1], TEXT + "s", TEXT.upper(), TEXT + "\n", TEXT.replace("s", "é"), "dmr_é"],
)
def test_what_has_not_the_form_of_a_key_claims_nothing(text: str) -> None:
    assert present(text) is None


def test_a_key_to_be_stored_holds_nothing_of_its_secret() -> None:
    stored = make_key(TEXT, "ci", ["read", "submit", "read"], "90d")
    assert (stored.id, stored.scopes, stored.expires_in) == ("abcdefghijk1", (Scope.SUBMIT, Scope.READ), timedelta(days=90))
    assert "sssss" not in repr(stored)
    assert len(stored.digest) == 32


def test_a_key_may_live_for_a_millisecond() -> None:
    assert make_key(TEXT, "ci", ["read"], timedelta(milliseconds=1)).expires_in == timedelta(milliseconds=1)


@pytest.mark.parametrize("scopes", [(), ["root"], ["read", "root"], "read"])
def test_scopes_that_there_are_not_are_refused(scopes: Any) -> None:
    with pytest.raises(Invalid, match="scopes: must be one or more of submit, read, operate, work, admin"):
        check_scopes(scopes)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"expires_in": "0s"}, "expires_in"),
        ({"expires_in": "soon"}, "expires_in"),
        ({"expires_in": timedelta(days=40000)}, "expires_in"),
        ({"text": "dmr_x"}, "key"),
    ],
)
def test_a_key_that_cannot_be_made_is_told_why(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        make_key(**{"text": TEXT, "name": "ci", "scopes": ["read"], **asked})
    assert refused.value.field == field


def test_a_key_that_may_only_submit_has_a_namespace_of_its_own() -> None:
    assert make_key(TEXT, "ci", [Scope.SUBMIT]).namespace == "abcdefghijk1"
    assert make_key(TEXT, "ci", [Scope.SUBMIT], namespace="").namespace == ""
    assert make_key(TEXT, "ci", [Scope.SUBMIT], namespace="shop").namespace == "shop"


@pytest.mark.parametrize("scopes", [["submit", "read"], ["read"], ["operate"], ["admin"]])
def test_a_key_that_may_do_more_shares_the_namespace_of_the_library(scopes: list[str]) -> None:
    assert make_key(TEXT, "ci", scopes).namespace == ""
    assert make_key(TEXT, "ci", scopes, namespace="shop").namespace == "shop"


@pytest.mark.parametrize("namespace", ["a b", "x" * 65, "é", "a/b"])
def test_a_namespace_that_is_no_name_is_refused(namespace: str) -> None:
    with pytest.raises(Invalid, match="namespace: must be 1 to 64"):
        make_key(TEXT, "ci", [Scope.SUBMIT], namespace=namespace)


def test_the_secret_before_is_accepted_until_the_overlap_ends() -> None:
    new = claim(TEXT[:-1] + "t")
    rotated = key(digest=new.digest, former_digest=claim().digest, former_until=NOW + HOUR)
    assert accepts(rotated, new, NOW)
    assert accepts(rotated, claim(), NOW + HOUR - timedelta.resolution)
    assert not accepts(rotated, claim(), NOW + HOUR)
    assert accepts(rotated, new, NOW + HOUR)
    assert not accepts(key(digest=new.digest, former_digest=claim().digest, former_until=None), claim(), NOW)
    revoked = key(digest=new.digest, former_digest=claim().digest, former_until=NOW + HOUR, revoked_at=NOW)
    assert not accepts(revoked, claim(), NOW)
