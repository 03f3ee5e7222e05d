"""`demora keys`: create, list, rotate, limit, revoke and forget the API keys of the HTTP service."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
import msgspec

from ..core.access import ApiKey, Scope, check_limits
from ..wire.api_keys import key_view, made_key_view
from . import output
from .opening import app_to_look_at, existing, opened
from .options import SPAN, as_json, asynchronous, whole_key_id
from .output import plain, print_json, rough
from .root import group, verb

SCOPE = click.Choice([scope.value for scope in Scope])
key_id = click.argument("id", metavar="ID")


def limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit what a key may submit."""
    for option in (
        click.option("--rate", type=int, help="Requests per second; 0 for no limit."),
        click.option("--max-waiting", type=int, help="How many of its jobs may wait at the same time; 0 for no limit."),
        click.option("--max-types", type=int, help="How many different types it may use; 0 for no limit."),
        click.option("--max-queues", type=int, help="How many different queues it may use; 0 for no limit."),
        click.option("--type", "types", multiple=True, help="A type it may submit, such as email.*; may be repeated."),
        click.option("--queue", "queues", multiple=True, help="A queue it may submit to, such as mail.*; may be repeated."),
    ):
        command = option(command)
    return command


@group("keys")
def keys() -> None:
    """Manage API keys. The HTTP service requires one as soon as one exists."""


@verb("create")
@click.argument("name", metavar="NAME")
@click.option("--scope", "scopes", type=SCOPE, multiple=True, required=True, help="What the key may do; may be repeated.")
@click.option("--expires-in", type=SPAN, help="How long the key is valid, for example 90d. Default: until it is revoked.")
@click.option(
    "--namespace", help="The namespace of its unique and idempotency keys. A submit-only key has its own by default."
)
@limits
@as_json
@asynchronous
async def create(
    name: str,
    *,
    scopes: tuple[str, ...],
    expires_in: timedelta | None,
    namespace: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """Create a key and print it. It is shown only once; demora stores a hash. NAME says who uses it and where."""
    checked = check_limits(**limits)
    async with opened(app_to_look_at()) as client:
        made = await client.keys.create(name, scopes, expires_in=expires_in, namespace=namespace, limits=checked)
    if as_json:
        print_json(made_key_view(made.key, made.text))
    else:
        click.echo(made.text)
        click.echo(_about(made.key, expires_in), err=True)


@verb("rotate")
@key_id
@click.option("--overlap", type=SPAN, help="How long the old secret stays valid, for example 1h. Default: it ends now.")
@click.option("--expires-in", type=SPAN, help="How long the key is valid from now. Default: unchanged.")
@as_json
@asynchronous
async def rotate(id: str, *, overlap: timedelta | None, expires_in: timedelta | None, as_json: bool) -> None:
    """Give a key a new secret and print it, only once. Its id, name, scopes, limits and namespace stay."""
    async with existing() as client:
        id = await whole_key_id(client, id)
        made = await client.keys.rotate(id, overlap=overlap, expires_in=expires_in)
        now = (await client.keys.find(id)).now
    if as_json:
        print_json(msgspec.structs.replace(key_view(made.key, now), key=made.text))
    else:
        click.echo(made.text)
        old = "stops working within a second" if overlap is None else f"stays valid for {rough(overlap)}"
        said = f"key {made.key.id} ({plain(made.key.name)}) has a new secret, which is not shown again; the old one {old}"
        click.echo(said, err=True)


@verb("limit")
@key_id
@limits
@as_json
@asynchronous
async def limit(id: str, *, as_json: bool, **limits: Any) -> None:
    """Change the limits of a key; limits that you do not give stay. Services apply them within a second."""
    given = {name: value for name, value in limits.items() if value not in (None, ())}
    if not given:
        raise click.UsageError("give at least one limit to change, for example --max-queues")
    async with existing() as client:
        id = await whole_key_id(client, id)
        key = await client.keys.limit(id, **given)
        now = (await client.keys.find(id)).now
    if as_json:
        print_json(key_view(key, now))
    else:
        click.echo(f"{key.id} ({plain(key.name)}) has new limits")


@verb("list")
@as_json
@asynchronous
async def list_(*, as_json: bool) -> None:
    """List the keys with their scopes, state, expiry and last use."""
    async with existing() as client:
        found = await client.keys.list()
    if as_json:
        print_json({"keys": [key_view(key, found.now) for key in found.keys]})
    else:
        output.keys(found.keys, found.now)


@verb("revoke")
@key_id
@as_json
@asynchronous
async def revoke(id: str, *, as_json: bool) -> None:
    """Revoke a key for good. The service refuses it within a second."""
    async with existing() as client:
        id = await whole_key_id(client, id)
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
    """Remove a revoked or expired key from the list. If it was the last one, a service on 127.0.0.1 requires no key."""
    async with existing() as client:
        id = await whole_key_id(client, id)
        await client.keys.forget(id)
        left = len((await client.keys.list()).keys)
    if as_json:
        print_json({"id": id, "left": left})
    else:
        click.echo(
            f"{id} is forgotten" + ("" if left else "; it was the last key, so a service on 127.0.0.1 now requires none")
        )


for command in (create, list_, rotate, limit, revoke, forget):
    keys.add_command(command)


def _about(key: ApiKey, expires_in: timedelta | None) -> str:
    until = "until it is revoked" if expires_in is None else f"for {rough(expires_in)}"
    return f"key {key.id} ({plain(key.name)}) may {', '.join(key.scopes)}, {until}; store it now, it is not shown again"
