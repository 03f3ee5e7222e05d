"""The HTTP server: strict HTTP/1.1, deadlines and limits. It runs the ASGI application and knows nothing of jobs."""
