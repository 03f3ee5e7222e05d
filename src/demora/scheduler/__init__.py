"""The scheduler role: housekeeping and releases. Nothing waits for it, and any number of processes may do it at once."""
