"""Runs the command line of demora inside the command line of a framework."""

import sys
from collections.abc import Sequence

from ..cli.root import Program, root


def run_root(
    options: Sequence[str],
    words: Sequence[str],
    *,
    name: str,
    typed: int | None = None,
    kept: Sequence[str] = (),
    standalone: bool = True,
    raises: bool = False,
) -> None:
    """Run the command of these words. `options` stand before them.

    The processes that the command starts are given what was typed before its last `typed` words, by default before `words`,
    then the `kept` options of the framework. With `raises`, an error is raised and not printed in one line.
    """
    end = len(sys.orig_argv) - (len(words) if typed is None else typed)
    started = [sys.executable, *sys.orig_argv[1:end], *kept]
    root.main([*options, *words], prog_name=name, obj=Program(started, words), standalone_mode=standalone and not raises)
