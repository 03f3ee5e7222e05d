"""A user's application, as type checkers must see it. Lines that end with `# error` must be errors, all others must not.

Nothing runs this file: `test_typing.py` gives it to mypy and pyright.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from demora import Context, Demora, Job

app = Demora()


@dataclass
class Receipt:
    cents: int


@app.job("email.send", max_retries=3, timeout="30s", permanent=(LookupError,))
async def send(to: str, subject: str = "Hello") -> dict[str, str]:
    return {"sent_to": to, "subject": subject}


@app.job("order.charge", queue="orders", retry_delay=timedelta(seconds=5))
def charge(ctx: Context, order: int) -> Receipt:
    ctx.log(f"order {order}")
    return Receipt(5)


@app.job("order.audit")
async def audit(ctx: Context) -> None:
    ctx.log("audited")


@app.job("data.import")
def load(data: Any, **more: Any) -> int:
    return len(data)


@app.job("email.receive", retries=3)  # error
def receive(to: str) -> None: ...


@app.job("email.drop", timeout=30)  # error
def drop(to: str) -> None: ...


async def enqueue() -> None:
    job = await send.enqueue(to="a@b.c")
    assert_type(job, Job[dict[str, str]])
    assert_type(await app.result(job), dict[str, str])
    assert_type(await app.result(job, timeout="10s"), dict[str, str])
    assert_type((await app.wait(job)).id, str)
    charged = await charge.options(delay="1h", key="order-7", within=None).enqueue(order=7)
    assert_type(await app.result(charged), Receipt)
    await audit.enqueue()
    await load.enqueue(data=[1], more=2)
    await app.enqueue("email.send", {"to": "a@b.c"}, delay="1h", priority="HIGH", tags=["news"])
    await app.enqueue_many([send.make(to="a@b.c"), ("email.send", {"to": "a@b.c"})])
    plain: Job = job
    assert_type(await app.result(plain.id), Any)

    await send.enqueue(tto=5)  # error
    await send.enqueue(to=5)  # error
    await send.enqueue()  # error
    await charge.enqueue(ctx=None, order=7)  # error
    send.make(subject="Hello")  # error
    send.options(dellay="1h")  # error
    send.options(delay=60)  # error
    send.options(countdown=60)  # error
    send.delay("a@b.c")  # error
    app.task("email.send")  # error
    await app.enqueue("email.send", {"to": "a@b.c"}, retries=3)  # error


def block() -> None:
    job = charge.enqueue_blocking(order=7)
    assert_type(job, Job[Receipt])
    assert_type(app.blocking.result(job), Receipt)
    app.blocking.enqueue("email.send", {"to": "a@b.c"}, delay="1h")
    app.blocking.enqueue("email.send", {"to": "a@b.c"}, dellay="1h")  # error
    charge.enqueue_blocking(oder=7)  # error


async def call(ctx: Context) -> None:
    assert_type(await send("a@b.c"), dict[str, str])
    assert_type(charge(ctx, 7), Receipt)
    charge(7)  # error
