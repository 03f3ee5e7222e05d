"""The core: makes all decisions, as pure functions of values, without I/O, clock or chance."""
