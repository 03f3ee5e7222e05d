"""The scheduler: housekeeping and the release of delayed jobs. Any number of processes may run one at the same time."""
