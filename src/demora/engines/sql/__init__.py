"""What both engines share: named queries, columns, the rules of an add, leases, paces, retention, schedules, events,
statistics, migration steps and searches."""
