"""URLs of databases and of Redis: how they are read, written for a driver, and shown without secrets."""

import pytest

from demora.core.dsn import Dsn, check_hosts, is_port, nth, read, scheme_of, without_secrets
from demora.errors import BadSetting

WHOLE = "postgresql://ann:a%2Fb@one:5432,[::1]:5433/jobs?sslmode=require&password=x"


def test_a_url_is_read_into_its_parts() -> None:
    assert read(WHOLE, "database_url") == Dsn(
        scheme="postgresql",
        user="ann",
        password="a/b",
        hosts="one:5432,[::1]:5433",
        path="/jobs",
        parameters=(("sslmode", "require"), ("password", "x")),
    )
    assert read("redis://host", "redis_url") == Dsn("redis", None, None, "host", "", ())
    assert read("redis://:p@host/0?", "redis_url") == Dsn("redis", "", "p", "host", "/0", ())
    assert read("redis://u@host", "redis_url") == Dsn("redis", "u", None, "host", "", ())


@pytest.mark.parametrize("url", [WHOLE, "redis://host", "redis://:p@host/0", "redis://u@host", "redis://u:@host"])
def test_a_url_is_written_as_it_was_read(url: str) -> None:
    assert read(url, "url").url() == url


def test_user_and_password_are_written_so_that_every_driver_reads_them() -> None:
    assert Dsn("redis", "a@b", "c:d/e", "host", "", ()).url() == "redis://a%40b:c%3Ad%2Fe@host"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (WHOLE, "postgresql://ann:…@one:5432,[::1]:5433/jobs?sslmode=require&password=…"),
        ("postgresql://ann@host/jobs", "postgresql://ann@host/jobs"),
        ("postgresql://a%40b@host/jobs", "postgresql://…@host/jobs"),
        ("postgresql://host/jobs", "postgresql://host/jobs"),
        ("postgresql://host/jobs?options=secret", "postgresql://host/jobs"),
        ("redis://ann:p@host", "redis://ann:…@host"),
        ("redis://:p@host", "redis://:…@host"),
        ("redis://hunter2@host", "redis://…@host"),  # some write the password there
        ("sqlite:///demora.db?x#y z", "sqlite:///demora.db?x#y z"),
        ("sqlite", "…"),
        ("hunter2", "…"),
        ("Hunter2://x", "…"),
        ("postgresql://a b", "postgresql://…"),
        ("postgresql://u:p#q@host", "postgresql://…"),
    ],
)
def test_a_url_is_shown_without_secrets(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@pytest.mark.parametrize(
    ("url", "scheme"),
    [("redis://host", "redis"), ("a://b", "a"), ("hunter2", None), ("Hunter2://x", None), (f"{'a' * 21}://x", None)],
)
def test_a_scheme_is_shown_if_it_is_one(url: str, scheme: str | None) -> None:
    assert scheme_of(url) == scheme


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("host/jobs", "does not begin with a scheme"),
        ("Hunter2://host", "does not begin with a scheme"),
        ("redis://a b", "contains a blank"),
        ("redis://a\tb", "contains a blank or a character that does not print"),
        ("redis://u:p#q@host", "contains a #"),
        ("redis://u:100%@host", "contains a % that no two hexadecimal digits follow"),
        ("redis://u:p/q@host", "contains an @ behind the host"),
        ("redis://a!b", "its host is not a name or an address"),
        ("redis://host:0", "its port is not a number"),
        ("redis://host:65536", "its port is not a number"),
        ("redis://host:", "its port is not a number"),
        ("redis://host?db=1&x", "the second parameter after its question mark has no ="),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_showing_it(url: str, why: str) -> None:
    with pytest.raises(BadSetting, match=why) as refused:
        read(url, "redis_url")
    assert "redis_url" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("1", True),
        ("65535", True),
        ("0", False),
        ("65536", False),
        ("", False),
        ("٣", False),
        ("000001", False),
        ("00001", True),
    ],
)
def test_a_port_is_a_number_up_to_65535(text: str, is_one: bool) -> None:
    assert is_port(text) is is_one


def test_each_host_is_checked() -> None:
    check_hosts("one:1,two,[::1]:3", "database_url")
    with pytest.raises(BadSetting, match="port"):
        check_hosts("one:1,two:x", "database_url")


def test_a_parameter_is_named_by_its_position() -> None:
    assert [nth(n) for n in (1, 2, 3, 4)] == [
        "the first parameter",
        "the second parameter",
        "the third parameter",
        "number 4 of the parameters",
    ]
