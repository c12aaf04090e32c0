"""`farm service agent`: the agent of a host with phones."""

import fcntl
import os
import signal
from dataclasses import replace
from pathlib import Path

import click

from workloads.cli_options import PORT, DurationUpTo, FiniteRange, lab_folder_option
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmTrouble
from workloads.protocol.phone_address import parse_phone_address


@click.group()
def service() -> None:
    """Run the agent of a host with phones."""


@service.command()
@lab_folder_option("Use this lab folder for settings and for the agent's state.")
@click.option("--broker", default="", help="Use this broker URL, without a password.")
@click.option("--host", default="", help="Set the name of this host (default: its host name).")
@click.option(
    "--connect", multiple=True, help="Connect a phone over TCP: HOST[:PORT], by default port 5555."
)
@click.option("--adb-port", type=PORT, default=None, help="Use the shared adb server on this port.")
@click.option("--private-adb", is_flag=True, help="Run a private adb server, without USB.")
@click.option(
    "--patience",
    type=FiniteRange(1, 1000),
    default=1.0,
    help="Factor for the limits of answers; virtual phones on a busy computer need 10.",
)
@click.option(
    "--watchdog",
    "watchdog_s",
    type=DurationUpTo(1e6),
    default="60s",
    help="Time on a phone's clock without a heartbeat after which it restores itself.",
)
def agent(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    lab_folder: Path,
    broker: str,
    host: str,
    connect: tuple[str, ...],
    adb_port: int | None,
    private_adb: bool,
    patience: float,
    watchdog_s: float,
) -> None:
    """Run the agent of this host until Ctrl-C.

    Phones on USB are found automatically; phones on TCP are named with --connect.

    \b
    Examples:
      farm service agent
      farm service agent --broker redis://127.0.0.1:6379 --connect 192.168.0.7:5555
    """
    from agent.host_settings import HostSettings
    from agent.phone.adb import AdbServer
    from agent.timeouts import DEFAULT_TIMEOUTS
    from agent.worker import serve
    from workloads.lab.service_health import start_service
    from workloads.lab.service_metrics import Service

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if broker and not broker.startswith(("redis://", "rediss://", "unix://")):
        raise click.UsageError("--broker has to begin with redis://, rediss:// or unix://")
    if "@" in broker or "password" in broker:
        text = "every user of this computer can see a password in --broker; set FARM_BROKER instead"
        raise click.UsageError(text)
    lab = Lab.read(lab_folder, {**os.environ, **({"FARM_BROKER": broker} if broker else {})})
    agent_settings = lab.settings.agent
    name = lab.host_name(host)
    folder = lab.agent_folder(name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if lock_folder(folder) is None:
        text = f"an agent named {name} already runs in {folder}; choose another --host"
        raise FarmTrouble(text)
    port = 0 if private_adb else adb_port or agent_settings.adb_port
    health = start_service(lab, Service.AGENT, f"agent-{name}")
    server = AdbServer(folder / "adb", private=private_adb, port=port)
    settings = HostSettings(
        host=name,
        broker=lab.broker_url,
        state_dir=folder,
        connect=(*agent_settings.connect, *map(_tcp_address, connect)),
        max_parallel=agent_settings.max_parallel,
        commission=agent_settings.commission,
        files=lab.files_folder,
        timeouts=replace(DEFAULT_TIMEOUTS.with_patience(patience), watchdog_timeout_s=watchdog_s),
    )
    serve(settings, server, health)


def _tcp_address(text: str) -> str:
    try:
        return parse_phone_address(text)
    except ValueError as error:
        raise click.UsageError(f"--connect: {error}") from None


def lock_folder(folder: Path) -> int | None:
    """Lock the agent's folder until this file is closed; None if another process has it.

    A second agent would report the first one's runs as interrupted.
    """
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
