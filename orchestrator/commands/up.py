"""`farm up`: runs a lab on this host."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import DEFAULT_LAB, connect, lab_option
from workloads.phone_address import parse_phone_address
from workloads.protocol.faults import BrokerDown, InvalidRequest

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.supervisor.process import ServiceProcess
    from workloads.lab_settings import Lab


class PhoneCounter:
    """Prints the number of connected phones whenever it changes."""

    def __init__(self, lab: "LabConnection") -> None:
        self._lab = lab
        self._printed = 0

    def poll(self) -> None:
        """Read the number of phones; print it if it changed."""
        from orchestrator.app.read_status import read_status_board

        try:
            board = read_status_board(self._lab)
        except BrokerDown:
            return  # the supervisor is restarting it
        phones = board.phones if board else {}
        connected = sum(count for state, count in phones.items() if state != "away")
        if board and connected != self._printed:
            self._printed = connected
            click.echo(f"{connected} phone{'s' * (connected != 1)} connected.")


def _tcp_address(text: str) -> str:
    try:
        return parse_phone_address(text)
    except ValueError as error:
        raise InvalidRequest(f"--connect: {error}") from None


def _api_service(lab: "Lab") -> "list[ServiceProcess]":
    """Prepare the API; a lab whose port is taken runs without it."""
    from orchestrator.app.api_port import api_url
    from orchestrator.app.app_errors import InvalidState
    from orchestrator.supervisor.services import api_service

    try:
        process = api_service(lab)
    except InvalidState as error:
        click.echo(f"The lab runs without its API: {error}", err=True)
        return []
    click.echo(f"The API is at {api_url(lab.settings.api)}; people need: farm token add NAME")
    return process


@click.command()
@lab_option
@click.option("--host", default="", help="Name of this host. Default: the computer's name.")
@click.option("--no-agent", is_flag=True, help="Run only the central services.")
@click.option("--virtual", is_flag=True, help="Use six virtual phones instead of attached ones.")
@click.option("--connect", "connected", multiple=True, help="Connect a phone: HOST[:PORT].")
@click.option("--native", is_flag=True, help="Use this computer as the phone.")
@click.option(
    "--speed",
    type=click.FloatRange(0.01, 1000),
    default=None,
    help="How many times faster than real time virtual phones run.",
)
def up(
    lab_folder: Path,
    host: str,
    no_agent: bool,
    virtual: bool,
    connected: tuple[str, ...],
    native: bool,
    speed: float | None,
) -> None:
    """Run broker, store, scheduler, ingest, API and an agent on this host until Ctrl-C.

    Phones on USB are found automatically, phones on Wi-Fi are named with --connect. Everything that
    must survive a restart is in the lab folder. With --native, training really runs on this
    computer and its numbers have the source `host`; clocks, temperatures and energy are used as far
    as the computer shows them. Clocks can be pinned if the lab runs as root.

    \b
    Examples:
      farm up
      farm up --connect 192.168.1.23
      farm up --virtual --speed 50
    """
    from orchestrator.supervisor import services as lab_services
    from orchestrator.supervisor.process import stop_all, stop_on_signals
    from orchestrator.supervisor.virtual_phones import NATIVE, PROFILES, virtual_phones

    if native and virtual:
        raise click.UsageError("--virtual and --native cannot be combined")
    if connected and (no_agent or native or virtual):
        raise click.UsageError(
            "--connect cannot be combined with --no-agent, --virtual or --native"
        )
    if speed is not None and not virtual:
        raise click.UsageError("--speed needs --virtual")
    logging.basicConfig(format="farm: %(message)s", level="WARNING")
    stop_on_signals()
    from orchestrator.commands.notice import NoticePrinter
    connection = connect(lab_folder)
    lab = connection.lab
    host = lab.host_name(host)
    with lab_services.lab_lock(lab):
        profiles = PROFILES if virtual else NATIVE if native else ()
        phones, addresses = (
            virtual_phones(lab, speed or 1.0, profiles=profiles) if profiles else ((), ())
        )
        try:
            # A private adb server keeps virtual phones out of the user's own adb.
            options = ["--private-adb"] if profiles else []
            named = (*addresses, *(_tcp_address(text) for text in connected))
            options += [part for address in named for part in ("--connect", address)]
            agents = [] if no_agent else [lab_services.agent_process(lab, host, *options)]
            with lab_services.services(lab, [*agents, *_api_service(lab)]) as processes:
                click.echo(f"The lab in {lab.root} is up. Submit with: farm sweep submit FILE")
                if lab.root != DEFAULT_LAB.absolute():
                    click.echo(f"Other commands need: export FARM_LAB={lab.root}")
                click.echo("Ctrl-C stops the lab; queued runs stay queued.")
                polls = (PhoneCounter(connection).poll, NoticePrinter(connection).poll)
                lab_services.supervise(lab, [*phones, *processes], polls)
        except KeyboardInterrupt:
            click.echo("The lab is stopped; start it again with the same command.")
        finally:
            stop_all(phones)
