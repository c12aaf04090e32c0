"""Stop other software on a phone that sets clocks and switches cores, for the duration of a run.

Daemons are stopped by name and started again. Those that protect the phone from heat keep running
unless the condition itself asks to stop them: then the watchdog's temperature limits protect it.
"""

from collections.abc import Iterable, Sequence

from agent.phone.kernel_nodes import CPU, first_number
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import (
    ShellCommand,
    ShellResult,
    parse_complete_nodes,
    read_nodes_command,
    write_node_command,
)
from agent.phone.vendor_daemons import is_perf_daemon
from agent.restore.restore_journal import RestoreJournal
from agent.restore.reversible_change import ChangeKind, ReversibleChange
from workloads.protocol.faults import ClockSlipped
from workloads.protocol.phone_facts import Cluster

_RUNNING = {"running", "restarting"}
LOOK_EVERY_S = 0.05


def stop_perf_daemons(
    phone: Phone, clusters: Iterable[Cluster], thermal: bool, journal: RestoreJournal
) -> None:
    """Stop the daemons of a rooted phone, and keep core_ctl from switching cores off."""
    if not phone.facts.rooted:
        return
    names = [name for name in phone.facts.perf_daemons if is_perf_daemon(name, thermal)]
    all_cpus = {_min_cpus_node(cluster): len(cluster.cpus) for cluster in clusters}
    *states, nodes = phone.shell_batch([*map(_state_command, names), read_nodes_command(all_cpus)])
    running = _running(names, states)
    values = parse_complete_nodes(nodes.text)
    min_cpus = {path: first_number(values.get(path, "")) for path in all_cpus}
    too_low = {
        path: count
        for path, count in min_cpus.items()
        if count is not None and count < all_cpus[path]
    }
    if not running and not too_low:
        return
    changes = [
        ReversibleChange(kind=ChangeKind.SERVICE, key=f"service {name}", old="running")
        for name in running
    ]
    changes += [
        ReversibleChange(kind=ChangeKind.NODE, key=path, old=str(count))
        for path, count in too_low.items()
    ]
    journal.record_changes(changes)
    commands = [ShellCommand(["stop", name]) for name in running]
    commands += [write_node_command(path, str(all_cpus[path])) for path in too_low]
    phone.shell_batch(commands)
    _wait_until_stopped(phone, running)


def _wait_until_stopped(phone: Phone, names: Sequence[str]) -> None:
    if not names:
        return
    looks = max(1, round(phone.timeouts.daemon_stop_timeout_s / LOOK_EVERY_S))
    for _ in range(looks):
        names = _running(names, phone.shell_batch([_state_command(name) for name in names]))
        if not names:
            return
        phone.sleep(LOOK_EVERY_S)
    raise ClockSlipped(f"cannot hold the clocks: daemon {', '.join(names)} did not stop")


def _state_command(name: str) -> ShellCommand:
    return ShellCommand(["getprop", f"init.svc.{name}"])


def _running(names: Sequence[str], states: Sequence[ShellResult]) -> list[str]:
    pairs = zip(names, states, strict=True)
    return [name for name, state in pairs if state.text.strip() in _RUNNING]


def _min_cpus_node(cluster: Cluster) -> str:
    return f"{CPU}/cpu{cluster.cpus[0]}/core_ctl/min_cpus"
