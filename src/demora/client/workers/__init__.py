"""What the client does for workers: it serves remote workers, and takes jobs back from workers that have died."""
