"""Pinning: everything that holds clocks and cores where a condition asks, in the order that takes.

Daemons first, then cores, then governors, then limits: each later one is undone by an earlier one.
"""

from collections.abc import Iterable

from agent.control.clocks import can_pin, clusters_of, hold_fixed_performance, pin_clocks
from agent.control.gpu_clock import pin_gpu
from agent.control.journal import Journal
from agent.control.opponents import stop_opponents
from agent.control.placement import barred_cpus, enter_all_cores
from agent.phone.phone import Phone
from workloads.condition import Condition
from workloads.messages import Resolved
from workloads.phone import FIXED, CoreSet


def pin(
    phone: Phone,
    condition: Condition,
    cores: CoreSet,
    resolved: Resolved,
    coolers: Iterable[str],
    journal: Journal,
) -> None:
    """Hold the phone as resolved; what the phone does not let us hold was refused or is told."""
    facts = phone.known
    if barred_cpus(facts, cores):
        enter_all_cores(phone)
    if condition.freq == FIXED:
        hold_fixed_performance(phone, journal)
    if resolved.clocks_khz and can_pin(facts):
        thermal = condition.thermal_daemons is not None
        stop_opponents(phone, clusters_of(facts, cores), thermal, journal)
        pin_clocks(phone, resolved.clocks_khz, cores, coolers, journal)
    if resolved.gpu_khz is not None:
        pin_gpu(phone, resolved.gpu_khz, journal)
