"""Metrics for Prometheus: counts what a worker reports, and writes the text that Prometheus reads.

It needs the extra `metrics`. Only `runtime/` imports it, and only if metrics are asked for.
"""
