"""Handlers: the functions registered for job types, and what they can ask and say while they run."""
