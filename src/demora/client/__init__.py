"""The client: everything that a caller may ask of demora. Python code, HTTP, dashboard and command line all use it."""
