"""`farm lab init`: creates the authority, certificates and passwords of a lab of several hosts."""

from pathlib import Path

import click

from orchestrator.commands.common import lab_option


@click.group()
def lab() -> None:
    """Create the certificates and passwords of a lab of several hosts."""


@lab.command("init")
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name or address of the servers, as other computers use it; can be repeated.",
)
@click.option("--broker", default="", help="Name of the broker's host. Default: the first --name.")
@click.option("--store", default="", help="Name of PostgreSQL's host. Default: SQLite.")
@click.option("--renew", is_flag=True, help="Also renew certificates that do not expire soon.")
@lab_option
def init_lab(
    names: tuple[str, ...], broker: str, store: str, renew: bool, lab_folder: Path
) -> None:
    """Create the authority, certificates and passwords of a lab.

    Existing files are not replaced, except certificates that expire within 30 days, and with --name
    the server's. Without a lab.toml, one is written whose settings use them.

    \b
    Examples:
      farm lab init --name centre.lab --store centre.lab
      farm lab init
    """
    from orchestrator.app.lab_secrets import create_secrets, secure_settings
    from orchestrator.commands.init import commented_settings
    from workloads.certificates import write_private
    from workloads.lab_settings import SETTINGS_FILE

    named = tuple(dict.fromkeys((*names, *filter(None, (broker, store))))) if names else ()
    for written in create_secrets(lab_folder, named, renew):
        click.echo(str(written))
    file = lab_folder / SETTINGS_FILE
    if names and not file.exists():
        values = secure_settings(names[0], broker or names[0], store)
        write_private(file, ("\n".join(commented_settings(values)) + "\n").encode())
        click.echo(f"{file}: settings that use these files")
    click.echo("Keep tls/ca.key secret: it can be used to impersonate every server.", err=True)
