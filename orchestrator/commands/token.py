"""`farm token`: who may use the API of the lab, as what, and until when."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from orchestrator.commands.common import (
    change_options,
    connect,
    json_option,
    lab_option,
    print_change,
    print_items,
    print_json,
)
from workloads.cli_options import FiniteRange, value_option


@click.group()
def token() -> None:
    """Add, list and revoke API tokens, and links to the web page."""


@token.command()
@click.argument("person")
@value_option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    help="Viewers can only read; operators also control the lab; admins also change the store.",
)
@value_option(
    "--days",
    type=FiniteRange(0, 3650, min_open=True),
    default=90.0,
    help="Days until the token expires.",
)
@lab_option
@json_option
def add(person: str, role: str, days: float, lab_folder: Path, as_json: bool) -> None:
    """Create a token for a PERSON and print it, once.

    The person uses it with: export FARM_API=URL FARM_TOKEN=TOKEN

    Example: farm token add anna --role operator --days 30
    """
    from orchestrator.app.manage_tokens import add_token
    from orchestrator.app.operation import Role

    added = add_token(connect(lab_folder), person, Role(role), days)
    if as_json:
        print_json(asdict(added.token) | {"secret": added.secret})
        return
    click.echo(added.secret)
    ends = f"{added.token.expires_at:%Y-%m-%d %H:%M} UTC"
    click.echo(f"{added.token.id}: {added.token.person}, {role}, until {ends}", err=True)


@token.command()
@click.argument("person")
@lab_option
@json_option
def link(person: str, lab_folder: Path, as_json: bool) -> None:
    """Print a link to the web page of the lab for a PERSON.

    The link works once: the browser that opens it first stays logged in for 30 days, with
    read-only access. 'farm token list' shows the session, 'farm token revoke' ends it.

    Example: farm token link anna
    """
    from orchestrator.app.manage_tokens import add_login_link

    added = add_login_link(connect(lab_folder), person)
    if as_json:
        print_json(asdict(added))
        return
    click.echo(added.url)
    click.echo(f"It works once, until {added.expires_at:%H:%M} UTC.", err=True)


@token.command("list")
@lab_option
@json_option
def list_all(lab_folder: Path, as_json: bool) -> int:
    """List all tokens, newest first; the secrets are not stored.

    Example: farm token list
    """
    from orchestrator.app.manage_tokens import list_tokens

    tokens = list_tokens(connect(lab_folder))
    now = datetime.now(UTC)
    rows = [
        (
            *(item.id, item.person, "login link" if item.once else item.role),
            f"{item.expires_at:%Y-%m-%d %H:%M}",
            "revoked" if item.revoked else "valid" if item.is_valid(now) else "expired",
        )
        for item in tokens
    ]
    headings = ("TOKEN", "PERSON", "ROLE", "EXPIRES (UTC)", "STATE")
    if_empty = "no token yet; add one with: farm token add NAME"
    return print_items(tokens, as_json, headings, rows, if_empty)


@token.command()
@click.argument("token_id", metavar="TOKEN")
@change_options
def revoke(token_id: str, dry_run: bool, lab_folder: Path) -> None:
    """Revoke a TOKEN at once; 'farm token list' prints its id.

    Example: farm token revoke tk-1a2b3c4d
    """
    from orchestrator.app.manage_tokens import revoke_token

    print_change(revoke_token(connect(lab_folder), token_id, dry_run))
