"""The rules for calls to other servers: what demora may call, what an answer means, turns at a busy host, and webhooks."""
