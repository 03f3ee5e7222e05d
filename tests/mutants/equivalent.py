"""Generated bugs that are none: what they change cannot be told from outside. By name, each with its reason."""

EQUIVALENT: dict[str, str] = {
    "46515b310c62": "engines/sqlite/diagnostics.py, 4 or 5 fields: a line of mountinfo has 6 before its dash",
}
