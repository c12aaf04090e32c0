"""`farm lab token`: who may use the API of the lab, as what, and until when."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    change_options,
    connect,
    count_words,
    json_option,
    lab_option,
    print_change,
    print_items,
    print_json,
    wide_option,
)
from workloads.cli_options import DurationUpTo, value_option
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection

DAY_S = 24 * 3600.0


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
    "--for",
    "valid_s",
    type=DurationUpTo(3650 * DAY_S),
    default="90d",
    help="How long the token is valid.",
)
@click.option("--link", is_flag=True, help="Print a link to the web page instead.")
@lab_option
@json_option
def add(
    person: str, role: str, valid_s: float, link: bool, lab_folder: Path, as_json: bool
) -> None:
    """Create a token for a PERSON and print it, once.

    The person uses it with: export FARM_API=URL FARM_TOKEN=TOKEN

    A link works once: the browser that opens it first stays logged in for 30 days, with read-only
    access. 'farm lab token list' shows the session, 'farm lab token revoke' ends it.

    \b
    Examples:
      farm lab token add anna --role operator --for 30d
      farm lab token add anna --link
    """
    from orchestrator.app.manage_tokens import add_token
    from orchestrator.app.operation import Role

    lab = connect(lab_folder)
    if link:
        _print_link(lab, person, as_json)
        return
    added = add_token(lab, person, Role(role), valid_s / DAY_S)
    if as_json:
        print_json(asdict(added.token) | {"secret": added.secret})
        return
    click.echo(added.secret)
    ends = f"{added.token.expires_at:%Y-%m-%d %H:%M} UTC"
    click.echo(f"{added.token.id}: {added.token.person}, {role}, until {ends}", err=True)


def _print_link(lab: "LabConnection", person: str, as_json: bool) -> None:
    """Print a link with which a person logs in to the web page, once."""
    from orchestrator.app.manage_tokens import add_login_link

    added = add_login_link(lab, person)
    if as_json:
        print_json(asdict(added))
        return
    click.echo(added.url)
    click.echo(f"It works once, until {added.expires_at:%H:%M} UTC.", err=True)


@token.command("list")
@wide_option
@lab_option
@json_option
def list_all(lab_folder: Path, as_json: bool) -> int:
    """List all tokens, newest first; the secrets are not stored.

    Example: farm lab token list
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
    if_empty = "no token yet; add one with: farm lab token add NAME"
    summary = f"{count_text(len(rows), 'token')}: {count_words(row[-1] for row in rows)}."
    hide = ("TOKEN", "EXPIRES (UTC)")
    return print_items(tokens, as_json, headings, rows, if_empty, summary, hide)


@token.command()
@click.argument("token_id", metavar="TOKEN")
@change_options
def revoke(token_id: str, dry_run: bool, lab_folder: Path) -> None:
    """Revoke a TOKEN at once; 'farm lab token list' prints its id.

    Example: farm lab token revoke tk-1a2b3c4d
    """
    from orchestrator.app.manage_tokens import revoke_token

    print_change(revoke_token(connect(lab_folder), token_id, dry_run))
