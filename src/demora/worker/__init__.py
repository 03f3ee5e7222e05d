"""The worker: claims jobs, runs their handlers, and settles the outcomes."""

from .worker import Worker

__all__ = ["Worker"]
