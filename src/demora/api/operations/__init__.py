"""The operations of the API, a file for each resource. `wire/` has the shapes that they read and answer."""
