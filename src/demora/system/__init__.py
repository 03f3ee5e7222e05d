"""What demora takes from the machine: clocks, timers, new ids, child processes, stop signals, forks, crash points, traces
and the log."""
