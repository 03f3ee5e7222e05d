"""`python -m tests.schedules`: fire times of cron expressions against a second implementation that walks the clock."""
