"""What demora takes from the machine: clocks, timers, child processes, stop signals, forks, crash points, traces and the
log."""
