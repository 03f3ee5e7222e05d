"""The dashboard: pages for people, at `/dashboard` of the service or mounted elsewhere. It calls the client."""

from .asgi import Dashboard, dashboard

__all__ = ["Dashboard", "dashboard"]
