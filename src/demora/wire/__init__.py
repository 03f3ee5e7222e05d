"""The shapes of everything that demora sends and accepts as JSON, over HTTP and with `--json`.

The API and the command line make answers of them, and `remote/`, the other end of the API, reads the same shapes back.
"""
