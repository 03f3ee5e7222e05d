"""sizes: how many bytes the parts of the database take."""

from demora.store.store import Store
from tests.builders import add_ids


async def test_a_database_grows_with_its_jobs(store: Store) -> None:
    before = sum(one.bytes for one in await store.diagnostics.sizes())
    await add_ids(store, *({"payload": b'"' + b"x" * 2000 + b'"'} for _ in range(200)))
    after = await store.diagnostics.sizes()
    assert sum(one.bytes for one in after) > before
    assert all(one.name for one in after)
    assert [one.bytes for one in after] == sorted((one.bytes for one in after), reverse=True)
