"""The line on Redis or Valkey, one server or a cluster. It is the only part of demora that imports the Redis driver."""

from .line import RedisLine

__all__ = ["RedisLine"]
