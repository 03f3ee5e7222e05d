"""HTTP requests to other servers: the guarded sender, the handler `http.request`, and the delivery of webhooks."""
