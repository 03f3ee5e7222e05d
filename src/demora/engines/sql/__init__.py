"""What both engines share: named queries, columns that they store alike, stored paces, and turns of searches."""
