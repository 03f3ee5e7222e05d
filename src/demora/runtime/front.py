"""The front of the service: pages below `/dashboard` go to the dashboard, everything else to the API.

Behind a reverse proxy that serves it below a path, the setting `root_path` names that path. Links and redirects then begin
with it, whether the proxy strips it from the requests that it passes on or not.
"""

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from ..api import Api
from ..api.request_ids import request_id, with_id
from ..api.routing import path_below
from ..dashboard.asgi import Dashboard

DASHBOARD = "/dashboard"
_PAGES = f"{DASHBOARD}/"


class Front:
    """An ASGI application of the API and, unless it is switched off, the dashboard. `/` sends browsers to the dashboard."""

    def __init__(self, api: Api, dashboard: Dashboard | None, *, root_path: str = "") -> None:
        self._api, self._dashboard, self._root = api, dashboard, root_path

    def stop(self) -> None:
        self._api.stop()
        if self._dashboard is not None:
            self._dashboard.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        root, path = self._root or scope.get("root_path", ""), path_below(scope["path"], self._root) or "/"
        if self._dashboard is not None and (path == DASHBOARD or path.startswith(_PAGES)):
            await self._dashboard({**scope, "path": root + path, "root_path": root + DASHBOARD}, receive, send)
        elif self._dashboard is not None and path == "/" and scope["method"] == "GET" and _is_browser(scope):
            await _redirect(root + DASHBOARD, with_id(send, request_id(Headers(scope=scope))))
        else:
            await self._api({**scope, "path": root + path, "root_path": root} if root else scope, receive, send)


def _is_browser(scope: Scope) -> bool:
    """Whether the caller wants a page for people: browsers accept text/html, and programs usually do not name it."""
    return "text/html" in Headers(scope=scope).get("accept", "")


async def _redirect(there: str, send: Send) -> None:
    headers = [
        (b"location", there.encode()),
        (b"content-length", b"0"),
        (b"cache-control", b"no-store"),
        (b"vary", b"accept"),
    ]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
