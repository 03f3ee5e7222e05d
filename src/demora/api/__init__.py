"""The HTTP API: `/api/v1`, camelCase JSON, problem+json errors. It calls the client and never a store."""

from .asgi import Api, api, make_api

__all__ = ["Api", "api", "make_api"]
