"""`farm up` and `farm down`: run a lab on this host, and stop it."""

import logging
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, lab_option
from workloads.cli_options import DEFAULT_LAB, FiniteRange
from workloads.command_output import say, show_wait
from workloads.protocol.faults import BrokerDown, InvalidRequest
from workloads.protocol.phone_address import parse_phone_address
from workloads.units import count_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.supervisor.process import ServiceProcess
    from workloads.lab.settings import Lab


NO_PHONE_S = 15.0  # after this time without a phone, a hint is printed
NO_PHONE = "No phone is connected; 'farm doctor' reports the cause. Or: farm up --virtual"
# How long `farm up -d` waits for phones that were named, and for phones on USB.
NAMED_PHONES_S, USB_PHONES_S = 30.0, 5.0
POLL_INTERVAL_S = 0.2


class PhoneCounter:
    """Prints the number of connected phones whenever it changes, and once if there is none."""

    def __init__(self, lab: "LabConnection") -> None:
        self._lab = lab
        self._printed: int | None = None
        self._started_at = time.monotonic()

    def poll(self) -> None:
        """Read the number of phones; print it if it changed."""
        from orchestrator.app.read_status import list_connected_phones

        try:
            phones = list_connected_phones(self._lab)
        except BrokerDown:
            return  # the supervisor is restarting it
        connected = sum(phone.state != "away" for phone in phones)
        if connected == self._printed:
            return
        if connected or self._printed is not None:
            click.echo(f"{count_text(connected, 'phone')} connected.")
        elif time.monotonic() - self._started_at > NO_PHONE_S:
            say(NO_PHONE)
        else:
            return
        self._printed = connected


def _tcp_address(text: str) -> str:
    try:
        return parse_phone_address(text)
    except ValueError as error:
        raise InvalidRequest(f"--connect: {error}") from None


def _api_service(lab: "Lab") -> "list[ServiceProcess]":
    """Prepare the API; a lab whose port is taken runs without it."""
    from orchestrator.app.app_errors import InvalidState
    from orchestrator.app.remote.api_port import api_url
    from orchestrator.supervisor.services import api_service

    try:
        process = api_service(lab)
    except InvalidState as error:
        click.echo(f"The lab runs without its API: {error}", err=True)
        return []
    say(f"The API is at {api_url(lab.settings.api)}; add a token with: farm lab token add NAME")
    return process


@click.command()
@lab_option
@click.option("--host", default="", help="Name of this host. Default: the computer's name.")
@click.option("--no-agent", is_flag=True, help="Run only the central services.")
@click.option("--virtual", is_flag=True, help="Use six virtual phones instead of attached ones.")
@click.option("--connect", "connected", multiple=True, help="Connect a phone: HOST[:PORT].")
@click.option("--native", is_flag=True, help="Use this computer as the phone.")
@click.option("-d", "--detach", is_flag=True, help="Run in the background until 'farm down'.")
@click.option(
    "--speed",
    type=FiniteRange(0.1, 1000),
    default=None,
    help="Speed of the virtual phones' clocks relative to real time.",
)
def up(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    lab_folder: Path,
    host: str,
    no_agent: bool,
    virtual: bool,
    connected: tuple[str, ...],
    native: bool,
    detach: bool,
    speed: float | None,
) -> None:
    """Run broker, store, scheduler, ingest, API and an agent on this host until Ctrl-C.

    Phones on USB are found automatically, phones on Wi-Fi are named with --connect. Everything that
    must survive a restart is in the lab folder. With --native, training runs on this computer
    and its numbers have the source `host`; clocks, temperatures and energy are measured where the
    computer provides them. Clocks can be pinned if the lab runs as root.

    \b
    Examples:
      farm up
      farm up -d --connect 192.168.1.23
      farm up --virtual --speed 50
    """
    from orchestrator.commands.notice import NoticePrinter
    from orchestrator.supervisor import services as lab_services
    from orchestrator.supervisor.lab_process import lab_lock
    from orchestrator.supervisor.process import stop_all, stop_on_signals
    from orchestrator.supervisor.virtual_phones import (
        NATIVE,
        PROFILES,
        agent_options,
        virtual_phones,
    )

    if native and virtual:
        raise click.UsageError("--virtual and --native cannot be combined")
    if connected and (no_agent or native or virtual):
        raise click.UsageError(
            "--connect cannot be combined with --no-agent, --virtual or --native"
        )
    if speed is not None and not virtual:
        raise click.UsageError("--speed needs --virtual")
    if detach:
        flags = {"--no-agent": no_agent, "--virtual": virtual, "--native": native}
        options = [name for name, is_set in flags.items() if is_set]
        options += ["--host", host] if host else []
        options += ["--speed", str(speed)] if speed is not None else []
        options += [part for address in connected for part in ("--connect", address)]
        count = len(PROFILES if virtual else NATIVE if native else connected)
        _start_in_background(connect(lab_folder), options, None if no_agent else (host, count))
        return
    logging.basicConfig(format="farm: %(message)s", level="WARNING")
    stop_on_signals()
    connection = connect(lab_folder)
    lab = connection.lab
    host = lab.host_name(host)
    with lab_lock(lab):
        profiles = PROFILES if virtual else NATIVE if native else ()
        phones, addresses = (
            virtual_phones(lab, speed or 1.0, profiles=profiles) if profiles else ((), ())
        )
        try:
            options = (
                [*agent_options(speed or 1.0)] if virtual else ["--private-adb"] if native else []
            )
            named = (*addresses, *(_tcp_address(text) for text in connected))
            options += [part for address in named for part in ("--connect", address)]
            agents = [] if no_agent else [lab_services.agent_process(lab, host, *options)]
            api = _api_service(lab)
            with lab_services.services(lab, [*agents, *api]) as processes:
                _print_up(connection, bool(api))
                click.echo("Ctrl-C stops the lab; queued runs stay queued.")
                polls = (PhoneCounter(connection).poll, NoticePrinter(connection).poll)
                lab_services.supervise(lab, [*phones, *processes], polls)
        except KeyboardInterrupt:
            click.echo("The lab is stopped; start it again with the same command.")
        finally:
            stop_all(phones)


def _start_in_background(
    connection: "LabConnection", options: "list[str]", agent: tuple[str, int] | None
) -> None:
    """Start the lab in a separate process, and return when its services and phones answer.

    `agent` is the host name that was asked for, and the number of phones that were named.
    """
    from orchestrator.app.services.lab_readiness import LabReadiness, read_readiness
    from orchestrator.supervisor.lab_process import refuse_if_running, start_in_background
    from orchestrator.supervisor.process import service_command

    lab = connection.lab
    command = service_command("up", "--lab", lab.root, *options)
    refuse_if_running(lab)
    has_page = bool(_api_service(lab))  # before the other process takes the port
    host = lab.host_name(agent[0]) if agent else ""
    since = datetime.now(UTC)

    def readiness() -> "LabReadiness":
        state = read_readiness(connection, since, host, has_page)
        awaited[:] = state.missing or (f"phones: {state.phones} connected",)
        return state

    awaited = ["the broker"]
    with show_wait(lambda: ", ".join(awaited)):
        pid, log_file = start_in_background(lab, command, lambda: readiness().missing)
        if agent:
            _wait_for_phones(lambda: readiness().phones, agent[1])
    _print_up(connection, has_page)
    say(f"It runs as process {pid} and writes {log_file}; stop it with: farm down")


def _wait_for_phones(count: "Callable[[], int]", named: int) -> None:
    """Wait until the named phones can be used, or one on USB; print how many cannot."""
    timeout_s = NAMED_PHONES_S if named else USB_PHONES_S
    deadline = time.monotonic() + timeout_s
    while (phones := count()) < max(named, 1) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)
    if phones < named:
        say(
            f"Only {phones} of {named} phones answered within {timeout_s:.0f} s; 'farm doctor' "
            "reports the cause.",
            err=True,
        )
    else:
        say(f"{count_text(phones, 'phone')} connected." if phones else NO_PHONE)


def _print_up(connection: "LabConnection", has_page: bool) -> None:
    """Say where the lab is; a terminal gets a link to its page, a log file must not contain one."""
    from orchestrator.app.manage_tokens import add_login_link
    from orchestrator.app.remote.api_port import api_url

    lab = connection.lab
    if has_page and sys.stdout.isatty():
        link = add_login_link(connection, connection.user or "local").url
        click.echo(f"Web page, for one browser within 15 minutes: {link}")
    elif has_page:
        url = api_url(lab.settings.api)
        say(f"The web page is at {url}; log in with: farm lab token add NAME --link")
    say(f"The lab in {lab.root} is up. Submit with: farm sweep submit FILE")
    if lab.root != DEFAULT_LAB.absolute():
        click.echo(f"Other commands need: export FARM_LAB={shlex.quote(str(lab.root))}")


@click.command()
@lab_option
def down(lab_folder: Path) -> int:
    """Stop the lab that 'farm up' runs, here or in another terminal.

    Running runs are stopped and every phone is restored; queued runs stay queued.

    Example: farm down
    """
    from orchestrator.commands.common import read_lab
    from orchestrator.commands.exit_codes import NOTHING
    from orchestrator.supervisor.lab_process import stop_lab

    lab = read_lab(lab_folder)
    with show_wait("runs to stop and phones to be restored"):
        was_running = stop_lab(lab)
    if was_running:
        click.echo(f"The lab in {lab.root} is stopped; queued runs stay queued.")
        return 0
    click.echo(f"The lab in {lab.root} is not running.", err=True)
    return NOTHING
