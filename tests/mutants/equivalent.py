"""Generated bugs that are none: what they change cannot be told from outside. By name, each with its reason."""

EQUIVALENT: dict[str, str] = {}
