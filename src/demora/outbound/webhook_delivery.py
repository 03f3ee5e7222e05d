"""The handler of `demora.webhook`, which delivers webhooks. A delivery is a job, and each try is one of its attempts."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..client.webhooks import Webhooks
from ..core.outbound.answers import JITTER, Meaning, meaning_of_delivery
from ..core.outbound.targets import check_target, read_url
from ..core.outbound.webhook import QUEUE, RETRIES, RETRY_CAP, RETRY_DELAY, TYPE, Secret, message_id, signed
from ..handlers.context import Context
from ..handlers.control import Fail
from ..handlers.registry import Defaults, Handler
from ..store.webhooks import Signing
from ..system import notices
from .http_request import MOST_EXCERPT, excerpt, guarded, try_again
from .sender import Sender, ServerReply

TIMEOUT = timedelta(minutes=6)  # of a run; the sender's own deadline is shorter


class WebhookHandler:
    """Delivers webhooks. If `muted`, it sends nothing and its result says so; tests of applications use this."""

    def __init__(
        self,
        webhooks: Callable[[], Awaitable[Webhooks]],
        sender: Callable[[], Sender],
        given: Callable[[], Sequence[Secret]],
    ) -> None:
        self._webhooks, self._sender, self._given = webhooks, sender, given
        self.muted = False

    def handler(self) -> Handler:
        usual = Defaults(
            queue=QUEUE,
            max_retries=RETRIES,
            retry_delay=RETRY_DELAY,
            timeout=TIMEOUT,
            retry_cap=RETRY_CAP,
            jitter=JITTER,
        )
        return Handler(TYPE, self.deliver, usual)

    async def deliver(self, ctx: Context, url: str, message: msgspec.Raw) -> dict[str, Any]:
        """Send a signed message with the same id on each attempt. A failure is retried for a day and a half.

        A server that answers 410 disables the URL.
        """
        if self.muted:
            return {"status": None, "excerpt": "not sent: this is a sandbox"}
        webhooks = await self._webhooks()
        stands = await webhooks.signing(url)
        if stands.disabled is not None:
            raise Fail(f"the URL is disabled: {stands.disabled.reason}; demora webhooks enable URL enables it")
        secrets = await self._secrets(webhooks, stands)
        reply = await guarded(ctx, self._send(url, message_id(ctx.id), bytes(message), secrets), RETRY_CAP)
        meaning = meaning_of_delivery(reply.status)
        if meaning is Meaning.DONE:
            return {"status": reply.status, "excerpt": reply.text(MOST_EXCERPT)}
        if meaning is Meaning.GONE:
            await webhooks.disable(url, f"its server answered {reply.status}")
            raise Fail(f"the server answered {reply.status}, so its URL is disabled", detail=excerpt(reply))
        raise try_again(ctx, f"the server answered {reply.status}", reply, RETRY_CAP)

    async def test(self, url: str, id: str) -> ServerReply:
        """Send one signed test message to a URL. Raises the error if it cannot be sent."""
        webhooks = await self._webhooks()
        secrets = await self._secrets(webhooks, await webhooks.signing(url))
        check_target(read_url(url), self._sender().policy)
        body = {
            "jobId": id,
            "jobType": "demora.test",
            "status": "completed",
            "completedAt": None,
            "attempts": 0,
            "result": None,
        }
        return await self._send(url, message_id(id), msgspec.json.encode(body), secrets)

    async def _secrets(self, webhooks: Webhooks, stands: Signing) -> list[Secret]:
        """The secrets to sign with. If there is none yet, one is made: a delivery never fails because there is no secret."""
        while not (found := [*self._given(), *(one.secret for one in stands.secrets if one.in_force(stands.now))]):
            if await webhooks.ensure_secret() is not None:
                notices.webhook_secret_made()
            stands = await webhooks.secrets()
        return found

    async def _send(self, url: str, id: str, body: bytes, secrets: Sequence[Secret]) -> ServerReply:
        headers = {"Content-Type": "application/json", **signed(id, body, secrets, datetime.now(UTC))}
        return await self._sender().send("POST", read_url(url), headers=headers, body=body)
