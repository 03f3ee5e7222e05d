"""demora: run jobs later, on time, and without hurting what runs now."""
