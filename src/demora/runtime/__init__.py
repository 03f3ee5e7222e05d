"""One process of demora from start to end: the service, the supervisor of several workers, and waiting for the database."""
