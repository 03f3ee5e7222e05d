"""`demora keys`: API keys for the HTTP service; made, listed, revoked, forgotten."""

from datetime import timedelta

import click

from ..core.access import ApiKey, Scope
from ..views import key_view, made_key_view
from . import tables
from .opening import chosen_app, existing, opened
from .options import SPAN, as_json, asynchronous
from .root import group, verb
from .text import plain, rough
from .wire import print_json

SCOPE = click.Choice([scope.value for scope in Scope])
key_id = click.argument("id", metavar="ID")


@group("keys")
def keys() -> None:
    """API keys for the HTTP service, which asks for one as soon as there is any."""


@verb("create")
@click.argument("name", metavar="NAME")
@click.option("--scope", "scopes", type=SCOPE, multiple=True, required=True, help="What it is for; may be repeated.")
@click.option("--expires-in", type=SPAN, help="How long it is good for, for instance 90d; without it until revoked.")
@as_json
@asynchronous
async def create(name: str, *, scopes: tuple[str, ...], expires_in: timedelta | None, as_json: bool) -> None:
    """Make a key and print it, this once: only a hash of it is stored. NAME is for people: who uses it, and where."""
    async with opened(chosen_app(None)) as client:
        made = await client.keys.create(name, scopes, expires_in=expires_in)
    if as_json:
        print_json(made_key_view(made.key, made.text))
    else:
        click.echo(made.text)
        click.echo(_about(made.key, expires_in), err=True)


@verb("list")
@as_json
@asynchronous
async def list_(*, as_json: bool) -> None:
    """List the keys: who may do what, until when, and when each was last used."""
    async with existing() as client:
        ring = await client.keys.list()
    if as_json:
        print_json({"keys": [key_view(key, ring.now) for key in ring.keys]})
    else:
        tables.keys(ring.keys, ring.now)


@verb("revoke")
@key_id
@as_json
@asynchronous
async def revoke(id: str, *, as_json: bool) -> None:
    """End a key for good. The service refuses it within a second."""
    async with existing() as client:
        key = await client.keys.revoke(id)
        now = (await client.keys.find(id)).now
    if as_json:
        print_json(key_view(key, now))
    else:
        click.echo(f"{key.id} ({plain(key.name)}) is revoked")


@verb("forget")
@key_id
@as_json
@asynchronous
async def forget(id: str, *, as_json: bool) -> None:
    """Take a key off the list that is revoked or has expired. When none is left, nobody on this machine needs one."""
    async with existing() as client:
        await client.keys.forget(id)
        left = len((await client.keys.list()).keys)
    if as_json:
        print_json({"id": id, "left": left})
    else:
        click.echo(f"{id} is forgotten" + ("" if left else "; it was the last: a service on 127.0.0.1 asks for no key now"))


for command in (create, list_, revoke, forget):
    keys.add_command(command)


def _about(key: ApiKey, expires_in: timedelta | None) -> str:
    until = "until it is revoked" if expires_in is None else f"for {rough(expires_in)}"
    return f"key {key.id} ({plain(key.name)}) may {', '.join(key.scopes)}, {until}; keep it: it is not shown again"
