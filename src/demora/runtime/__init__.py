"""Runs a process of demora: the service, the supervisor of several workers, and the wait for the database at the start."""
