"""The worker: claims jobs, runs their handlers, and settles what became of them."""

from .worker import Worker

__all__ = ["Worker"]
