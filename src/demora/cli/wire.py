"""`--json`: exactly what the HTTP service answers, on one line."""

import re
from typing import Any

import click
import msgspec

# Controls of terminals (C1 and DEL), marks that turn the direction of text, and others that are not seen.
_UNSEEN = re.compile("[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def print_json(view: Any) -> None:
    click.echo(escaped(msgspec.json.encode(view).decode()))


def escaped(json: str) -> str:
    """The same JSON, in which no character moves the cursor or turns the text: outside of strings there are none of them."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json)
