"""`farm up`: a lab on this host that stays."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import DEFAULT_LAB, lab_option, read_lab
from workloads.protocol.faults import BrokerDown

if TYPE_CHECKING:
    from orchestrator.dispatch.central_broker import CentralBroker


class PhoneCount:
    """Says how many phones are here, whenever that changes."""

    def __init__(self, broker: "CentralBroker") -> None:
        self._broker = broker
        self._told = 0

    def tell(self) -> None:
        """Look at the board, and speak if there is news."""
        try:
            board = self._broker.status()
        except BrokerDown:
            return  # it is being brought back
        phones = board["phones"] if board else {}
        here = sum(count for state, count in phones.items() if state != "away")
        if board and here != self._told:
            self._told = here
            click.echo(f"{here} phone{'s' * (here != 1)} here.")


@click.command()
@lab_option
@click.option("--host", default="", help="Name of this host (default: the machine's name).")
@click.option("--no-agent", is_flag=True, help="Run the middle only; agents are elsewhere.")
@click.option("--virtual", is_flag=True, help="Use six virtual phones, not those attached.")
@click.option("--native", is_flag=True, help="Use this host as a phone: its runs are real.")
@click.option(
    "--speed", type=click.FloatRange(0.01, 1000), default=None, help="Clock of the virtual phones."
)
def up(
    lab_folder: Path,
    host: str,
    no_agent: bool,
    virtual: bool,
    native: bool,
    speed: float | None,
) -> None:
    """Run broker, store, scheduler, ingest and an agent on this host until Ctrl-C.

    Phones attached over USB are picked up by themselves. Everything that must survive a restart
    is in the lab folder. A native phone is this host itself: what it trains is really trained, and
    its numbers say `host`; it has no clocks, no heat and no energy.
    """
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.supervisor import services as lab_up
    from orchestrator.supervisor.process import stop_all, stop_on_signals
    from orchestrator.supervisor.virtual_phones import NATIVE, PROFILES, virtual_phones

    if native and virtual:
        raise click.UsageError("simulated phones would disturb a native one; say one of the two")
    if speed is not None and not virtual:
        raise click.UsageError("--speed is the clock of virtual phones; add --virtual")
    logging.basicConfig(format="farm: %(message)s", level="WARNING")
    stop_on_signals()
    lab = read_lab(lab_folder)
    host = lab.host_name(host)
    phones_now = PhoneCount(CentralBroker(lab.broker_url))
    with lab_up.lab_lock(lab):
        chosen = PROFILES if virtual else NATIVE if native else ()
        phones, addresses = (
            virtual_phones(lab, speed or 1.0, profiles=chosen) if chosen else ((), ())
        )
        try:
            # An adb server of their own keeps virtual phones out of the one that people use.
            options = ["--private-adb"] if chosen else []
            options += [part for address in addresses for part in ("--connect", address)]
            agents = [] if no_agent else [lab_up.agent_process(lab, host, *options)]
            with lab_up.services(lab, agents) as children:
                click.echo(f"The lab in {lab.root} is up. Submit with: farm sweep submit FILE")
                if lab.root != DEFAULT_LAB.absolute():
                    click.echo(f"Commands look for ./{DEFAULT_LAB}; so: export FARM_LAB={lab.root}")
                click.echo("Ctrl-C stops it; what is queued stays queued.")
                lab_up.supervise([*phones, *children], phones_now.tell)
        except KeyboardInterrupt:
            click.echo("The lab is down; start it again with the same command.")
        finally:
            stop_all(phones)
