"""The client: everything that a caller may ask of demora. Python code, HTTP service and CLI all use it."""
