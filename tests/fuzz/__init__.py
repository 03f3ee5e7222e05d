"""Random requests against a real service: `python -m tests.fuzz`."""
