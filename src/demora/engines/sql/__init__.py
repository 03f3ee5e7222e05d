"""What both engines share: named queries, columns, paces, schedules, statistics, migration steps, and searches."""
