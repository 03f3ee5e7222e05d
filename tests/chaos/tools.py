"""Tools that some faults need, and why they are missing where they are."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
PACKAGES = Path("/var/cache/apt/archives")
DISK = "demora-chaos-"  # and the process that mounted it
SMALL = "16m"  # of a disk that is soon full


def missing(tool: str | None) -> str | None:
    """Why a tool cannot be used here; None if it can."""
    return None if tool is None else _WHY_NOT[tool]()


@functools.cache
def _strace() -> str | None:
    if not shutil.which("strace"):
        return "strace is not installed"
    tried = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "strace may not trace here"


@functools.cache
def _mount() -> str | None:
    if os.geteuid() != 0 or not shutil.which("mount"):
        return "mounting a tmpfs needs root"
    try:
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)):
            return None
    except subprocess.CalledProcessError:
        return "mounting a tmpfs is not allowed here"


@functools.cache
def _faketime() -> str | None:
    return None if _installed() or _package() else "libfaketime is not installed"


def faketime(folder: Path) -> Path:
    """The library; taken out of Debian's package, into the folder, where it is not installed."""
    found = _installed()
    if found is None:
        subprocess.run(["dpkg-deb", "-x", str(_package()), str(folder / "libfaketime")], check=True)
        found = next((folder / "libfaketime").rglob("libfaketimeMT.so.1"))
    return found


def _installed() -> Path | None:
    names = ("faketime/libfaketimeMT.so.1", "*/faketime/libfaketimeMT.so.1")  # Debian has a folder for the machine between
    return next((found for root in LIBRARIES for name in names for found in Path(root).glob(name)), None)


def _package() -> Path | None:
    if not shutil.which("dpkg-deb") or not PACKAGES.is_dir():
        return None
    return next(iter(sorted(PACKAGES.glob("libfaketime_*.deb"))), None)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A tmpfs on the folder, unmounted whatever happens: if we are killed, by those who come after us."""
    _unmount_orphans()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", f"{DISK}{os.getpid()}", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _unmount_orphans() -> None:
    for line in Path("/proc/mounts").read_text().splitlines():
        name, where = line.split()[:2]
        if name.startswith(DISK) and not Path("/proc", name.removeprefix(DISK)).exists():
            subprocess.run(["umount", "-l", where], check=False)


_WHY_NOT = {"strace": _strace, "mount": _mount, "libfaketime": _faketime}
