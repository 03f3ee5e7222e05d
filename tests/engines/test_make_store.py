"""make_store: which store a URL names."""

import sys
from pathlib import Path

import pytest

from demora.engines import make_store, same_database
from demora.engines.options import PostgresOptions, driver_url
from demora.engines.postgres import PostgresStore
from demora.engines.sqlite import SqliteStore
from demora.errors import BadSetting


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///demora.db", Path("demora.db")),
        ("sqlite:///folder/demora.db", Path("folder/demora.db")),
        ("sqlite:////var/lib/demora.db", Path("/var/lib/demora.db")),
        ("sqlite:///a%20b.db", Path("a b.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(url: str, path: Path | None) -> None:
    store = make_store(url)
    assert isinstance(store, SqliteStore)
    assert store.path == path


@pytest.mark.parametrize(
    "url", ["", "demora.db", "sqlite:///", "mysql://x", "sqlite:x.db", "sqlite://x.db", "sqlite:///x.db?mode=ro"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(BadSetting, match="database_url"):
        make_store(url)


@pytest.mark.parametrize("url", ["postgresql://user@host/db", "postgres://host:5433/db?sslmode=require"])
def test_postgresql_is_used_as_its_options_say(url: str) -> None:
    store = make_store(url, postgres=PostgresOptions(schema="mine"))
    assert isinstance(store, PostgresStore)
    assert (store.url, store.options.schema) == (url, "mine")


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", ""),
        ("?", ""),
        ("?connect_timeout=5", ""),
        ("?keepalives=1&sslmode=require&keepalives_idle=30&gssencmode=disable", "?sslmode=require"),
        ("?channel_binding=prefer&options=-c%20geqo%3Doff", "?options=-c%20geqo%3Doff"),
        ("?target_session_attrs=read-write", "?target_session_attrs=read-write"),
    ],
)
def test_parameters_that_mean_nothing_to_the_driver_are_not_given_to_it(query: str, left: str) -> None:
    assert driver_url(f"postgresql://me@host/db{query}") == f"postgresql://me@host/db{left}"


def test_without_the_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("demora.engines.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(BadSetting, match=r"pip install 'demora\[postgres\]'"):
        make_store("postgresql://user@host/db")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sqlite:///a.db", "sqlite:///a.db", True),
        ("sqlite:///a.db", "sqlite:///./b/../a.db", True),
        ("sqlite:///a%20b.db", "sqlite:///a b.db", True),
        ("sqlite:///a.db", "sqlite:///b.db", False),
        ("postgresql://host/a", "postgresql://host/a", True),
        ("postgresql://host/a", "postgresql://host/./a", False),
        ("sqlite:///a.db", "postgresql://a.db", False),
        ("postgresql://a.db", "sqlite:///a.db", False),
        ("postgresql://host/a", "sqlite:///postgresql:/host/a", False),
    ],
)
def test_urls_name_the_same_database_as_text_or_as_the_same_file(one: str, other: str, same: bool) -> None:
    assert same_database(one, other) is same
