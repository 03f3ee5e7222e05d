"""Chaos: real processes on a real file, real faults, and the checker that judges what came of it."""
