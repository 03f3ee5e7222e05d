"""The version of the time zone database that this process uses."""

import functools
import zoneinfo
from importlib import import_module
from pathlib import Path

UNKNOWN = "0"  # goes before every version that is known


@functools.cache
def zones_version() -> str:
    """Return the version of the IANA database, such as `2026a`: that of the system or, where it has none, of `tzdata`."""
    for folder in zoneinfo.TZPATH:
        for read in (_of_rules, _of_folder):
            if version := read(Path(folder)):
                return version
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except ImportError:
        return UNKNOWN


def _of_rules(folder: Path) -> str | None:
    """Read the first line of the compact rules: `# version 2026a`."""
    try:
        with (folder / "tzdata.zi").open() as rules:
            return rules.readline().removeprefix("# version").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _of_folder(folder: Path) -> str | None:
    try:
        return (folder / "+VERSION").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
