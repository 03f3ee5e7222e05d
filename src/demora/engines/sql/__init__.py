"""What both engines share: named queries, columns, paces, schedules, statistics, parking, migration steps, and searches."""
