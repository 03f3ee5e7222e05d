"""The scheduler of a process without a worker: live among those that fire schedules, and the one that defines them."""

from demora import Demora
from demora.engines.sqlite import SqliteStore
from demora.runtime.scheduling import scheduler_of


async def test_a_process_without_a_worker_is_live_and_keeps_its_schedules_from_being_retired() -> None:
    store = SqliteStore()
    old, new = Demora(store=store, name="shop"), Demora(store=store, name="shop")
    old.schedule("tick", "demo.echo", every="1m")
    async with old:
        async with scheduler_of(old, "old"):
            assert await store.schedules.live() == ["old"]
            async with scheduler_of(new, "new"):
                assert await store.schedules.get("tick") is not None
                assert await store.schedules.live() == ["new", "old"]
        assert await store.schedules.live() == []
        async with scheduler_of(new, "new"):
            assert await store.schedules.get("tick") is None


async def test_a_process_without_a_worker_says_which_paces_its_settings_ask_for() -> None:
    store = SqliteStore()
    app = Demora(store=store)
    app.configure(pace={"mail": "off"})
    async with app, scheduler_of(app, "scheduler"):
        assert await store.schedules.attending() == {"scheduler": "mail off"}
