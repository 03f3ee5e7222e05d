"""Judges settings, clock, workers, queues, jobs, schedules, line and webhooks. Findings have a level, a fact and advice."""

from .jobs import judge_jobs, judge_paces
from .line import judge_line
from .schedules import judge_schedules
from .setup import judge_application, judge_settings, versions
from .webhooks import judge_webhooks

__all__ = ["judge_application", "judge_jobs", "judge_line", "judge_paces", "judge_schedules", "judge_settings"]
__all__ += ["judge_webhooks", "versions"]
