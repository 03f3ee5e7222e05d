"""An application whose handlers fork the service they run in; the children live until they are killed."""

import multiprocessing
import os
import signal

from demora import Demora

app = Demora()


@app.job("fork.raw")
def raw() -> int:
    """Fork, and let the child live on in the handler."""
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    return child


@app.job("fork.returns")
def returns() -> int:
    """Fork, and let both processes return."""
    return os.fork()


@app.job("fork.process")
def process() -> int:
    child = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=False)
    child.start()
    assert child.pid is not None
    return child.pid


@app.job("fork.async")
async def on_the_loop() -> int:
    """Fork on the thread of the loop, and let both processes return to it."""
    return os.fork()
