"""Servers that tests, chaos and benchmarks start for themselves, on private ports, gone with the process that asked."""
