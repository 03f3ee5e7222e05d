"""The way to the SQLite file: connections, threads and group commit, the lock of the file, and its watch."""
