"""A simulation of demora: the real core, client and worker over the real SQL, in virtual time, with seeded faults."""
