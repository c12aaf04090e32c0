"""`farm host join`: this computer becomes a host of a lab."""

import os
from pathlib import Path

import click

from workloads.cli_options import lab_folder_option
from workloads.command_output import say


@click.group()
def host() -> None:
    """Join a lab."""


@host.command()
@click.argument("url")
@click.option("--authority", default="", help="SHA-256 of the certificate of the lab's authority.")
@lab_folder_option("Write settings and secrets to this lab folder.")
def join(url: str, authority: str, lab_folder: Path) -> None:
    """Join a lab by the URL of its API.

    'farm host add' on the lab prints the whole command, with a secret in FARM_TOKEN. The private
    key of this host is created here and is not sent.

    Example: farm host join https://centre.lab:8400 --authority 3f5a...
    """
    from agent.join_lab import join_lab
    from workloads.lab.connection_url import read_secret

    file = os.environ.get("FARM_TOKEN_FILE")
    secret = read_secret(Path(file)) if file else os.environ.get("FARM_TOKEN", "").strip()
    if not secret:
        raise click.UsageError("FARM_TOKEN is not set; copy the whole command of 'farm host add'")
    name, has_settings = join_lab(url, authority, secret, lab_folder)
    click.echo(f"This computer is {name} of the lab at {url}.")
    if not has_settings:
        click.echo(f"{lab_folder}/lab.toml was kept; compare its [broker] with the docs.", err=True)
    say(f"Start its agent with: farm service agent --lab {lab_folder}", err=True)
