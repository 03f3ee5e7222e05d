"""Handlers: the functions registered for job types, the context of a run, and the signals that a handler may raise."""
