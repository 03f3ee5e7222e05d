"""What the client does for workers: it serves remote ones, and takes the jobs back from those that died."""
