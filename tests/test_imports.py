"""What `import demora` and a command load: every package that is not on these lists makes each program start later."""

import subprocess
import sys
from pathlib import Path

from demora.cli.root import COMMANDS
from tests.cli.conftest import leaves

LIBRARY = {"cronsim", "msgspec", "typing_extensions", "uuid_utils"}
COMMAND = LIBRARY | {"apsw", "click"}
SLOW = {"email", "http", "importlib.metadata", "tomllib", "unittest", "xml"}  # of the standard library
LOADED = """
import atexit, sys
before = set(sys.modules)
atexit.register(lambda: print(*set(sys.modules) - before))
"""
COMMAND_LINE = LOADED + "from demora.cli import main; sys.argv = ['demora', *{words!r}]; main()"


def loaded(program: str, folder: Path) -> set[str]:
    """The modules that a program loads in a process of its own."""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=folder)
    return set(said.stdout.splitlines()[-1].split())


def packages(modules: set[str]) -> set[str]:
    """The packages of other projects among modules."""
    names = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"demora"}
    return {name for name in names if not name.startswith("_")}  # the standard library has such that are not listed


def rooms(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("demora.")}


def commands(*words: str) -> str:
    return COMMAND_LINE.format(words=words)


def test_an_import_loads_few_packages(tmp_path: Path) -> None:
    modules = loaded(LOADED + "import demora", tmp_path)
    assert packages(modules) == LIBRARY
    assert modules & SLOW == set()
    assert not rooms(modules) & {
        "api",
        "cli",
        "dashboard",
        "doctor",
        "metrics",
        "proof",
        "remote",
        "runtime",
        "wire",
        "worker",
    }


def test_a_command_loads_few_packages_and_no_other_family(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "demora", "enqueue", "demo.echo"], check=True, capture_output=True, cwd=tmp_path)
    modules = loaded(commands("jobs", "--json"), tmp_path)
    assert packages(modules) == COMMAND
    assert modules & SLOW == set()
    assert not rooms(modules) & {"api", "dashboard", "doctor", "metrics", "proof", "remote", "runtime", "worker"}
    families = {f"demora.cli.{family}" for family in COMMANDS.values()}
    assert modules & families == {"demora.cli.jobs", "demora.cli.options"}  # the second completes the names of queues
    assert packages(loaded(commands("jobs"), tmp_path)) <= COMMAND | {"rich"}


def test_every_command_is_where_the_table_says() -> None:
    assert list(dict.fromkeys(words.split()[0] for words in leaves())) == list(COMMANDS)
