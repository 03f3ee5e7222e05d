"""What demora takes from the machine below it: clocks, timers, child processes, stop signals, crash points and the log."""
