"""`trioproxy keys`: make a caller's key and what the configuration needs of it. The key itself is kept nowhere."""

import re
import secrets
import sys

import click

from trioproxy.config import rules
from trioproxy.policy.access import key_hash

PREFIX = "tp-"
KEY_BYTES = 32  # 43 characters of URL-safe base64


@click.group("keys")
def command() -> None:
    """Make keys for callers.

    \b
    Examples:
      trioproxy keys new --id ci >> gateway.toml
      printf %s "$KEY" | trioproxy keys hash
    """  # noqa: D301 - click reads the backspace


def _name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        if value is not None:
            rules.name(None, None, value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None
    return value


@command.command("new", short_help="Make a key.")
@click.option("--id", "id_", callback=_name, help="What logs and reports call the key; made up if not given.")
@click.option("--tenant", default="default", show_default=True, callback=_name, help="Whom the key belongs to.")
def new(id_: str | None, tenant: str) -> None:
    """Make a key: it is shown this once, on standard error; what the configuration needs goes to standard output.

    \b
    Examples:
      trioproxy keys new
      trioproxy keys new --id ci --tenant research >> gateway.toml
    """  # noqa: D301 - click reads the backspace
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    id_ = id_ or f"key-{secrets.token_hex(3)}"
    click.echo(f"The caller's key, shown this once: {key}", err=True)
    click.echo(f'\n[[keys]]\nid = "{id_}"\nhash = "{key_hash(key)}"\ntenant = "{tenant}"')


@command.command("hash", short_help="Hash a key that is there.")
def hash_() -> None:
    """Read a key from standard input and print the hash that goes into the configuration.

    \b
    Examples:
      printf %s "$KEY" | trioproxy keys hash
      trioproxy keys hash < key.txt
    """  # noqa: D301 - click reads the backspace
    if sys.stdin.isatty():
        typed = str(click.prompt("Key", hide_input=True, err=True)).encode()
    else:
        typed = sys.stdin.buffer.read(65_536)
    key = typed.rstrip(b"\r\n")
    if not re.fullmatch(rb"[\x21-\x7e]+", key):
        click.echo("a key is one line of printable ASCII without spaces: give it on standard input", err=True)
        raise click.exceptions.Exit(1)
    click.echo(key_hash(key.decode()))
