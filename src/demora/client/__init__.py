"""The client: everything that a caller may ask of demora. Python code, HTTP service, CLI and dashboard all use it."""
