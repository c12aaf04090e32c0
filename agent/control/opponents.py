"""Opponents: what else on a phone sets clocks and switches cores, held still while we measure.

Daemons are stopped by name and started again. Those that protect the phone from heat are left
alone, unless the condition itself asks for it: then the dead-man's ceiling is what protects it.
"""

import time
from collections.abc import Iterable, Sequence

from agent.control.change import Change
from agent.control.journal import Journal
from agent.deadline import Deadline
from agent.phone.daemons import is_opponent
from agent.phone.nodes import CPU, first_number
from agent.phone.phone import Answer, Command, Phone, reading, whole_nodes, writing
from workloads.fault import ClockSlipped
from workloads.phone import Cluster

STOPPED_S = 1.0  # `stop` answers before the daemon has gone
_AT_WORK = {"running", "restarting"}


def stop_opponents(
    phone: Phone, clusters: Iterable[Cluster], thermal: bool, journal: Journal
) -> None:
    """Stop the daemons of a rooted phone, and keep core_ctl from taking cores away."""
    if not phone.known.rooted:
        return
    named = [name for name in phone.known.opponents if is_opponent(name, thermal)]
    wanted = {_min_cpus(cluster): len(cluster.cpus) for cluster in clusters}
    *states, nodes = phone.batch([*map(_state, named), reading(wanted)])
    running = _running(named, states)
    shown = whole_nodes(nodes.text)
    least = {path: first_number(shown.get(path, "")) for path in wanted}
    greedy = {path: now for path, now in least.items() if now is not None and now < wanted[path]}
    if not running and not greedy:
        return
    journal.note(
        [Change(kind="service", key=f"service {name}", old="running") for name in running]
        + [Change(kind="node", key=path, old=str(now)) for path, now in greedy.items()]
    )
    stops = [Command(["stop", name]) for name in running]
    phone.batch([*stops, *(writing(path, str(wanted[path])) for path in greedy)])
    _wait_until_gone(phone, running)


def _wait_until_gone(phone: Phone, names: Sequence[str]) -> None:
    patience = Deadline.after(STOPPED_S)
    while names:
        stubborn = _running(names, phone.batch([_state(name) for name in names]))
        if stubborn and patience.expired:
            raise ClockSlipped(f"{', '.join(stubborn)} would not stop and may set other clocks.")
        names = stubborn
        if names:
            time.sleep(0.02)


def _state(name: str) -> Command:
    return Command(["getprop", f"init.svc.{name}"])


def _running(names: Sequence[str], states: Sequence[Answer]) -> list[str]:
    pairs = zip(names, states, strict=True)
    return [name for name, state in pairs if state.text.strip() in _AT_WORK]


def _min_cpus(cluster: Cluster) -> str:
    return f"{CPU}/cpu{cluster.cpus[0]}/core_ctl/min_cpus"
