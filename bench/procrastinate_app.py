"""Procrastinate's side of the comparison; its database is named by the environment."""

import os

from procrastinate import App, PsycopgConnector

URL = "DEMORA_BENCH_PROCRASTINATE"
app = App(connector=PsycopgConnector(conninfo=os.environ.get(URL, "")), import_paths=["bench.procrastinate_app"])


@app.task(name="noop")
async def noop(to: str, subject: str, body: str) -> dict[str, bool]:
    return {"ok": True}
