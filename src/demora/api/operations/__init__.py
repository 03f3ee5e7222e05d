"""The operations of the API, a file for each resource, and the shapes that they read."""
