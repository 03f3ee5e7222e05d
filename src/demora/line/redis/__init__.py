"""The line on Redis or Valkey."""

from .line import RedisLine

__all__ = ["RedisLine"]
