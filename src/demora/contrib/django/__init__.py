"""demora in Django: a backend for Django's tasks, and `manage.py demora …`.

Add "demora.contrib.django" to INSTALLED_APPS.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import DemoraBackend

__all__ = ["DemoraBackend"]


def __getattr__(name: str) -> Any:
    """Import the backend when it is asked for: Django imports this package before its tasks can be imported."""
    if name == "DemoraBackend":
        from .backend import DemoraBackend

        return DemoraBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
