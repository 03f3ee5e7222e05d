"""The settings of the shop. SHOP_POSTGRES names a PostgreSQL; without it the shop keeps its orders in SQLite."""

import importlib.util
import os
from pathlib import Path
from urllib.parse import urlsplit

BASE_DIR = Path(__file__).parents[1]
SECRET_KEY = "only for this example"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = ["demora.contrib.django", "shop"]
if importlib.util.find_spec("django.tasks") is None:  # before Django 6 tasks are a package
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "demora.contrib.django.DemoraBackend",
        "QUEUES": [],
        "OPTIONS": {"max_retries": 3},
    }
}

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
if "SHOP_POSTGRES" in os.environ:
    url = urlsplit(os.environ["SHOP_POSTGRES"])
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path.removeprefix("/"),
        "USER": url.username,
        "PASSWORD": url.password or "",
        "HOST": url.hostname,
        "PORT": url.port,
    }
