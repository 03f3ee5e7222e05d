"""The way to PostgreSQL: pools and sessions, transactions, those of callers, and schema migrations."""
