"""What both engines share: named queries, columns, the rules of an add, paces, schedules, statistics, migration steps and
searches."""
