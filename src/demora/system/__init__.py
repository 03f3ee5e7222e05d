"""The services of the machine below: clocks, timers, child processes, stop signals, crash points and the log."""
