"""Everything that runs over HTTP instead of on a database: the client of a service, and the store of its remote workers."""

from .client import remote_client
from .connection import ServiceConnection
from .store import RemoteStore

__all__ = ["RemoteStore", "ServiceConnection", "remote_client"]
