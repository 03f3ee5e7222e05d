"""The pages of the dashboard, one module each: what they read, and the actions that they offer."""
