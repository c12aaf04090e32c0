"""Resolve a condition's names of cores and clocks on a phone, and pin the phone accordingly.

The order is daemons, then cores, then governors, then limits: each step would undo a later one.
"""

from collections.abc import Iterable

from agent.phone.kernel_nodes import used_clusters
from agent.phone.phone_driver import Phone
from agent.prepare.clock_pinning import gpu_nodes, pin_clocks
from agent.prepare.cpu_pinning import (
    barred_cpus,
    check_clocks_supported,
    check_cores_allowed,
    enable_fixed_performance,
    enter_all_cores,
    policy_nodes,
    switch_on_cores,
    uncapped_limits,
)
from agent.prepare.perf_daemons import stop_perf_daemons
from agent.restore.restore_journal import RestoreJournal
from workloads.catalogue import Case, thread_count
from workloads.protocol.condition import Condition
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.phone_facts import (
    FIXED,
    CoreSet,
    PhoneFacts,
    choose_clocks,
    choose_cores,
    choose_gpu_clock,
)


def resolve_condition(
    facts: PhoneFacts, case: Case, condition: Condition
) -> tuple[CoreSet, AppliedCondition]:
    """Resolve a job's request on this phone; InvalidRequest, before any change, if impossible."""
    if facts.runner_error is not None:
        raise InvalidRequest(facts.runner_error)
    cores = choose_cores(facts, condition.cores)
    check_cores_allowed(facts, cores)
    check_clocks_supported(facts, condition.freq)
    return cores, AppliedCondition(
        cpus=cores.cpus,
        mask=f"{cores.mask:x}",
        clocks_khz=choose_clocks(facts, cores, condition.freq),
        gpu_khz=choose_gpu_clock(facts, condition.gpu_freq),
        threads=thread_count(case, len(cores.cpus)),
    )


def pin_phone(
    phone: Phone,
    condition: Condition,
    cores: CoreSet,
    applied: AppliedCondition,
    coolers: Iterable[str],
    journal: RestoreJournal,
) -> None:
    """Pin cores and clocks as resolved; what this phone does not allow was refused before."""
    facts = phone.facts
    if barred_cpus(facts, cores):
        enter_all_cores(phone)
    if condition.freq == FIXED:
        enable_fixed_performance(phone, journal)
    if applied.clocks_khz and facts.clocks_writable:
        thermal = condition.thermal_daemons is not None
        stop_perf_daemons(phone, used_clusters(facts, cores), thermal, journal)
        switch_on_cores(phone, cores, journal)
        steps = {policy_nodes(facts, policy): khz for policy, khz in applied.clocks_khz.items()}
        pin_clocks(phone, steps, journal, uncapped_limits(phone, coolers))
    if applied.gpu_khz is not None:
        assert facts.gpu is not None, "a clock was chosen, so there is a GPU"
        step = applied.gpu_khz * 1000 // facts.gpu.unit_hz
        pin_clocks(phone, {gpu_nodes(facts.gpu): step}, journal, {})
