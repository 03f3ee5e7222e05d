"""Calls to other servers: the guarded sender, `http.request`, and the delivery of webhooks."""
