"""The command line: one module for each family of commands. All commands call the client and never a store."""

from .root import root


def main() -> None:
    """The entry point `demora`."""
    root(prog_name="demora")


__all__ = ["main", "root"]
