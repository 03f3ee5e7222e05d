"""make_store: which store a URL names."""

from pathlib import Path

import pytest

from demora.engines import make_store
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
    with pytest.raises(BadSetting, match="database URL"):
        make_store(url)
