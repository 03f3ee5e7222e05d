"""The ports: what a database does for demora, one file each, and the values they speak in."""
