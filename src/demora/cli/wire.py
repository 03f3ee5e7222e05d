"""`--json`: exactly what the HTTP service answers, on one line."""

from typing import Any

import click
import msgspec


def print_json(view: Any) -> None:
    click.echo(msgspec.json.encode(view))
