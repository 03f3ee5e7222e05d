"""A process handler of an application that is defined in another module."""

from tests.worker.process_jobs import app


@app.job("elsewhere", process=True)
def elsewhere() -> str:
    return "found"
