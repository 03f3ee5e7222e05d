"""Judges settings, clock, workers, queues, jobs, line and webhooks. Each finding has a level, a fact and advice."""

from .jobs import judge_jobs, judge_paces
from .line import judge_line
from .setup import judge_application, judge_settings, versions
from .webhooks import judge_webhooks

__all__ = ["judge_application", "judge_jobs", "judge_line", "judge_paces", "judge_settings", "judge_webhooks", "versions"]
