"""What demora decides: pure functions of values, without I/O, clock or chance."""
