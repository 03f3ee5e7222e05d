"""Short ways to make keys of every sort, and to ask with them."""

from collections.abc import Iterable
from datetime import timedelta

from demora import Demora
from demora.core.access import Scope, key_text

UNKNOWN = key_text("nobody111111", "x" * 43)


async def key_for(app: Demora, *scopes: Scope | str, life: timedelta | None = None) -> str:
    """The text of a new key."""
    return (await (await app.open()).keys.create("test", scopes, expires_in=life)).text


async def revoke(app: Demora, text: str) -> None:
    await (await app.open()).keys.revoke(id_of(text))


def id_of(text: str) -> str:
    return text.split("_")[1]


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def too_weak_for(scope: Scope) -> Iterable[Scope]:
    """All scopes that do not include this one."""
    return {
        Scope.SUBMIT: (Scope.READ, Scope.OPERATE, Scope.WORK),
        Scope.READ: (Scope.SUBMIT, Scope.WORK),
        Scope.OPERATE: (Scope.SUBMIT, Scope.READ, Scope.WORK),
        Scope.WORK: (Scope.SUBMIT, Scope.READ, Scope.OPERATE),
        Scope.ADMIN: (Scope.SUBMIT, Scope.READ, Scope.OPERATE, Scope.WORK),
    }[scope]
