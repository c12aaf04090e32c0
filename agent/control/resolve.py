"""Resolving: names of cores and clocks turned into what this phone has. Pure."""

from agent.control.clocks import check_clocks_possible, choose_clocks
from agent.control.gpu_clock import choose_gpu_clock
from agent.control.placement import check_cores_allowed
from workloads.catalogue import Case, threads_of
from workloads.condition import Condition
from workloads.fault import Refused
from workloads.messages import Resolved
from workloads.phone import CoreSet, PhoneFacts, choose_cores


def resolve(facts: PhoneFacts, case: Case, condition: Condition) -> tuple[CoreSet, Resolved]:
    """What a job asks of this phone; Refused before anything is touched where it cannot be had."""
    if facts.runner_absent is not None:
        raise Refused(facts.runner_absent)
    cores = choose_cores(facts, condition.cores)
    check_cores_allowed(facts, cores)
    check_clocks_possible(facts, condition.freq)
    return cores, Resolved(
        cpus=cores.cpus,
        mask=f"{cores.mask:x}",
        clocks_khz=choose_clocks(facts, cores, condition.freq),
        gpu_khz=choose_gpu_clock(facts, condition.gpu_freq),
        threads=threads_of(case, len(cores.cpus)),
    )
