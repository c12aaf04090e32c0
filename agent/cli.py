"""`farm agent`: the agent of a host with phones."""

import fcntl
import logging
import os
import signal
from pathlib import Path

import click

from workloads.fault import FarmTrouble
from workloads.lab import Lab


@click.group()
def agent() -> None:
    """Run the agent of a host with phones."""


@agent.command()
@click.option(
    "--lab",
    "lab_folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("lab"),
    envvar="FARM_LAB",
    show_default=True,
    help="The lab folder: settings, and where this agent keeps what must survive it.",
)
@click.option("--broker", default="", help="The broker's URL, if the lab is on another host.")
@click.option("--host", default="", help="Name of this host (default: the machine's name).")
@click.option("--connect", multiple=True, help="A phone reached over TCP (ADDRESS:PORT).")
@click.option("--adb-port", type=int, default=None, help="Port of the shared adb server.")
@click.option("--private-adb", is_flag=True, help="Run an adb server of our own, without USB.")
def run(
    lab_folder: Path,
    broker: str,
    host: str,
    connect: tuple[str, ...],
    adb_port: int | None,
    private_adb: bool,
) -> None:
    """Run the agent of this host until Ctrl-C.

    Phones over USB are picked up by themselves, phones over TCP are named with --connect.
    """
    from agent.host import HostSettings
    from agent.phone.adb import AdbServer
    from agent.worker import serve

    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level="INFO")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if broker and not broker.startswith(("redis://", "rediss://", "unix://")):
        raise click.UsageError("--broker begins with redis://, rediss:// or unix://")
    lab = Lab.read(lab_folder, {**os.environ, **({"FARM_BROKER": broker} if broker else {})})
    said = lab.settings.agent
    name = lab.host_name(host)
    folder = lab.agent_folder(name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _lock(folder, name)
    port = 0 if private_adb else adb_port or said.adb_port
    server = AdbServer(folder / "adb", private=private_adb, port=port)
    settings = HostSettings(
        host=name,
        broker=lab.broker_url,
        state_dir=folder,
        connect=(*said.connect, *connect),
        slots=said.slots,
        files=lab.files_folder,
    )
    serve(settings, server)


def _lock(folder: Path, name: str) -> None:
    """Hold the agent's folder for the life of the process.

    A second agent would take the first one's runs for those of a dead predecessor.
    """
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = f"an agent named {name} already runs in {folder}; choose another --host"
        raise FarmTrouble(text) from None
