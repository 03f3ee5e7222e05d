"""The settings of the suite. `SUITE_FOLDER` is an empty folder, `SUITE_POSTGRES` an empty database or nothing.

`SUITE_WITHOUT` names a package that counts as not installed.
"""

import importlib.util
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

if without := os.environ.get("SUITE_WITHOUT"):
    sys.modules[without] = None  # type: ignore[assignment]
BASE_DIR = Path(os.environ["SUITE_FOLDER"])
SECRET_KEY = "not a secret"
USE_TZ = True
TIME_ZONE = "America/Lima"
IN_DJANGO = importlib.util.find_spec("django.tasks") is not None
PACKAGE = "django.tasks" if IN_DJANGO else "django_tasks"
INSTALLED_APPS = ["demora.contrib.django", "shop", *(["django_tasks"] if importlib.util.find_spec("django_tasks") else [])]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
if server := os.environ.get("SUITE_POSTGRES"):
    url = urlsplit(server)
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path[1:],
        "USER": url.username,
        "HOST": url.hostname,
        "PORT": url.port,
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
    }
TASKS = {
    "default": {"BACKEND": "demora.contrib.django.DemoraBackend", "QUEUES": [], "OPTIONS": {}},
    "retrying": {"BACKEND": "demora.contrib.django.DemoraBackend", "OPTIONS": {"max_retries": 2, "retry_delay": "1s"}},
    "at_once": {"BACKEND": "demora.contrib.django.DemoraBackend", "OPTIONS": {"transaction": "none"}},
    "after": {"BACKEND": "demora.contrib.django.DemoraBackend", "OPTIONS": {"transaction": "on_commit"}},
    "apart": {
        "BACKEND": "demora.contrib.django.DemoraBackend",
        "OPTIONS": {"database_url": f"sqlite:///{BASE_DIR}/apart.db", "timeout": "7m"},
    },
    "dummy": {"BACKEND": f"{PACKAGE}.backends.dummy.DummyBackend", "QUEUES": []},
    "immediate": {"BACKEND": f"{PACKAGE}.backends.immediate.ImmediateBackend", "QUEUES": []},
}
if server:
    TASKS["joined"] = {"BACKEND": "demora.contrib.django.DemoraBackend", "OPTIONS": {"transaction": "join"}}
