"""Handlers: the functions registered for job types, the context of a run, and the exceptions that a handler raises to retry,
snooze, cancel or fail its job."""
