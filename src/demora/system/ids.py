"""New ids."""

from uuid_utils import uuid7


def new_id() -> str:
    """Return an id that no other process makes. Ids grow with time, so jobs can be listed by them."""
    return str(uuid7())
