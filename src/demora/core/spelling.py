"""Finds what a misspelt name was probably meant to be, for the sentence of an error."""

import difflib
from collections.abc import Iterable

_SIMILAR = 0.6  # of 1, as difflib counts


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean max_retries?` with the most similar of the known names, and nothing if none is similar."""
    found = difflib.get_close_matches(name, sorted(known), 1, cutoff=_SIMILAR)
    return f"; did you mean {found[0]}?" if found else ""
