"""`FullStore`: all the ports that every engine implements, as one type for the client."""

from typing import Protocol

from .api_keys import ApiKeyStore
from .audit import AuditStore
from .diagnostics import DiagnosticsStore
from .jobs import Store
from .paces import PaceStore
from .webhooks import WebhookStore


class FullStore(Store, PaceStore, ApiKeyStore, WebhookStore, DiagnosticsStore, AuditStore, Protocol):
    """A store that a client can use.

    Three more ports are optional, because only some engines can offer them: `Transactional` (PostgreSQL), `Probed` (SQLite)
    and `Reconcilable` (a store with a Redis line).
    """

    def sibling(self) -> "FullStore | None": ...
