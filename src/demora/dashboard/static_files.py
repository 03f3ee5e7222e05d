"""The files that a browser loads once: style, scripts, icons and font. All are in this package; none comes from elsewhere.

Their address contains a digest of all of them, so a browser may keep them for a year and still sees every new version.
"""

import functools
import gzip
import hashlib
from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parent / "static"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
# The name of a file and its parts.
_FILES: dict[str, tuple[str, ...]] = {
    "htmx.js": ("begin.js", "vendor/htmx.min.js"),
    "charts.js": ("vendor/uplot.min.js", "charts.js"),
    "demora.js": ("stream.js", "demora.js", "pages.js"),
    "demora.css": ("vendor/uplot.min.css", "demora.css"),
    "icons.svg": ("icons.svg",),
    "inter.woff2": ("vendor/inter.woff2",),
}
FOREVER = "public, max-age=31536000, immutable"


class StaticFile(msgspec.Struct, frozen=True):
    """A file as it is sent. `packed` is its gzip form, None where that would not be smaller."""

    media: str
    body: bytes
    packed: bytes | None


@functools.cache
def static_file(name: str) -> StaticFile | None:
    """Return a file by its name; None if there is none."""
    parts = _FILES.get(name)
    if parts is None:
        return None
    body = b"\n".join((_FOLDER / part).read_bytes() for part in parts)
    packed = None if name.endswith(".woff2") else gzip.compress(body, 9, mtime=0)
    return StaticFile(_KINDS[Path(name).suffix], body, packed)


@functools.cache
def version() -> str:
    """Return a digest of all files, for their addresses."""
    digest = hashlib.sha256()
    for name in _FILES:
        found = static_file(name)
        digest.update(b"" if found is None else found.body)
    return digest.hexdigest()[:12]
