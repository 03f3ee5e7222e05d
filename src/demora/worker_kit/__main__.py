"""`python -m demora.worker_kit URL --key KEY -- COMMAND…`: try a remote worker, and print a verdict."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from ..app import Demora
from ..errors import DemoraError
from .proxy import before
from .trials import TRIALS, Kit, attempt

_HELP = """Tries a worker in any language against the promises of the worker protocol. COMMAND starts the worker; {url} in
it becomes the URL that the worker must use. The worker finds its API key in DEMORA_API_KEY, and runs the types example.sum,
example.sleep and example.fail, as examples/worker.mjs does. Use a service with a short lease (DEMORA_LEASE=2s) and without
other workers of these types."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m demora.worker_kit", description=_HELP)
    parser.add_argument("url", help="the URL of the service")
    parser.add_argument("--key", help="an API key with the scopes submit, operate and work")
    parser.add_argument("--only", default="", help="run only the trials whose description contains this text")
    parser.add_argument("command", nargs="+", help="the command that starts a worker, after --")
    return asyncio.run(_try(parser.parse_args(arguments)))


async def _try(given: argparse.Namespace) -> int:
    chosen = [trial for trial in TRIALS if given.only in (trial.__doc__ or "")]
    failed = 0
    async with Demora(given.url, api_key=given.key) as app, before(given.url) as (proxy, through):
        try:
            lease = await _lease(app)
        except DemoraError as problem:
            print(f"the service does not answer: {problem}", file=sys.stderr)
            return 2
        kit = Kit(app, given.command, proxy, through, lease=lease)
        kit.give_key(given.key)
        for trial in chosen:
            problem_found = await attempt(kit, trial)
            failed += problem_found is not None
            print(f"{'ok    ' if problem_found is None else 'FAILED'}  {trial.__doc__}", flush=True)
            if problem_found is not None:
                print(f"        {problem_found}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} promises kept: the worker {'fails' if failed else 'passes'}")
    return 1 if failed else 0


async def _lease(app: Demora) -> float:
    """Return the seconds for which the service leases jobs."""
    from ..remote import RemoteStore

    store = (await app.open()).store
    assert isinstance(store, RemoteStore)
    return (await store.lease()).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
