"""Schedules: cron and other rules, their fire times, and what becomes of those that were missed or overlap."""
