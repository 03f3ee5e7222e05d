"""Where the jobs are, and what the system checks find."""

import os
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from demora.contrib.django.backend import DemoraBackend
from demora.contrib.django.databases import _postgres_url, database_url

ON_POSTGRES = "SUITE_POSTGRES" in os.environ


def test_the_system_checks_pass() -> None:
    assert [problem for problem in checks.run_checks() if problem.id.startswith("demora")] == []


@pytest.mark.parametrize(
    ("options", "id", "said"),
    [
        ({"max_retry": 3}, "demora.E001", "did you mean max_retries?"),
        ({"transaction": "later"}, "demora.E002", "must be one of auto, join, on_commit, none"),
    ],
)
def test_a_wrong_option_is_found(options: Any, id: str, said: str) -> None:
    [problem] = DemoraBackend("default", {"OPTIONS": options}).check()
    assert (problem.id, said in problem.msg) == (id, True)


@pytest.mark.skipif(ON_POSTGRES, reason="Django is on PostgreSQL")
def test_join_needs_postgresql() -> None:
    [problem] = DemoraBackend("default", {"OPTIONS": {"transaction": "join"}}).check()
    assert problem.id == "demora.E004"


def test_a_project_without_the_application_is_warned() -> None:
    with override_settings(INSTALLED_APPS=["shop"]):
        assert [problem.id for problem in DemoraBackend("default", {}).check()] == ["demora.W001"]


@pytest.mark.skipif(ON_POSTGRES, reason="Django is on PostgreSQL")
def test_jobs_are_never_in_the_sqlite_file_of_django() -> None:
    own = settings.DATABASES["default"]["NAME"]
    assert database_url({}) == f"sqlite:///{Path(own).with_name('db.demora.db')}"
    for url in (f"sqlite:///{own}", f"sqlite:///{own.parent}/../{own.parent.name}/{own.name}"):
        with pytest.raises(ImproperlyConfigured, match="drop each other's locks"):
            database_url({"database_url": url})
        [problem] = DemoraBackend("default", {"OPTIONS": {"database_url": url}}).check()
        assert problem.id == "demora.E003"


def test_the_options_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_DATABASE_URL", "sqlite:///environment.db")
    assert database_url({}) == "sqlite:///environment.db"
    assert database_url({"database_url": "sqlite:///options.db"}) == "sqlite:///options.db"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}, "postgresql:///shop"),
        (
            {
                "NAME": "sh/op",
                "USER": "a@b",
                "PASSWORD": "p:?#",
                "HOST": "db",
                "PORT": 5433,
                "OPTIONS": {"sslmode": "require"},
            },
            "postgresql://a%40b:p%3A%3F%23@db:5433/sh%2Fop?sslmode=require",
        ),
        (
            {"NAME": "shop", "USER": "ada", "PASSWORD": "", "HOST": "/run/pg", "PORT": "5433"},
            "postgresql://ada@/shop?host=/run/pg&port=5433",
        ),
    ],
)
def test_the_url_of_a_postgresql_is_that_of_django(given: Any, url: str) -> None:
    assert _postgres_url(given) == url


def test_a_service_must_be_named_by_a_url() -> None:
    with pytest.raises(ImproperlyConfigured, match="database_url"):
        _postgres_url({"NAME": "", "OPTIONS": {"service": "shop"}})
