"""Where rivals are installed: a virtual environment and a folder of Node, made for one run and gone after it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
_SCRIPT = Path(__file__).parent / "bullmq.mjs"


class NotInstalled(Exception):
    """A rival cannot be installed on this machine."""


class Installed:
    """What is installed in a folder. Neither the environment of demora nor its pinned requirements know of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def python(self, *packages: str) -> list[str]:
        """Install packages, and return how to start Python with them. The first is the rival."""
        python = self._folder / "venv" / "bin" / "python"
        if not python.exists():
            _run(sys.executable, "-m", "venv", str(python.parents[1]))
        _run(str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *packages)
        return [str(python), "-m"]

    def node(self, *packages: str) -> list[str]:
        """Install packages of npm, and return how to start the script that uses them. The first is the rival."""
        missing = [program for program in ("node", "npm") if shutil.which(program) is None]
        if missing:
            raise NotInstalled(f"there is no {missing[0]} on the PATH")
        folder = self._folder / "node"
        folder.mkdir(exist_ok=True)
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages)
        return ["node", str(shutil.copy(_SCRIPT, folder))]

    def version(self, package: str) -> str:
        """Return the version that was installed."""
        name = package.partition("[")[0]
        described = self._folder / "node" / "node_modules" / name / "package.json"
        if described.exists():
            return str(json.loads(described.read_text())["version"])
        return _run(str(self._folder / "venv" / "bin" / "python"), "-c", _VERSION, name).strip()


def _run(*command: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().rpartition("\n")[2]
        raise NotInstalled(f"{Path(command[0]).name} failed: {said}")
    return ended.stdout
