"""Judges what was found: whether settings, clock, workers, queues and jobs are as they should be, and what to do if not."""

from .jobs import judge_jobs, judge_paces
from .line import judge_line
from .setup import judge_settings, versions
from .webhooks import judge_webhooks

__all__ = ["judge_jobs", "judge_line", "judge_paces", "judge_settings", "judge_webhooks", "versions"]
