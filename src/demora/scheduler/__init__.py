"""The scheduler: housekeeping, the firing of schedules and the release of delayed jobs.

Any number of processes may run one at the same time.
"""
