"""What the rows of leased jobs say about leases."""

from collections.abc import Iterable, Sequence

from ...store.jobs import Lease, LeaseStatus


def status_of(leases: Sequence[Lease], found: Iterable[tuple[str, int, bool]]) -> LeaseStatus:
    """Return the status of these leases. `found` has the id and the token of each that still holds, and whether a cancel of
    its job was requested."""
    held = {(id, token): cancel for id, token, cancel in found}
    return LeaseStatus(
        lost=frozenset(lease for lease in leases if (lease.id, lease.token) not in held),
        cancel_requested=frozenset(lease for lease in leases if held.get((lease.id, lease.token))),
    )
