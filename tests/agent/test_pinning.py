"""Clocks and cores: what fights for them is held still, what cannot be held is told."""

import pytest

from agent.control.placement import Placement, parse_placement, strays
from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.daemons import find_opponents
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.trial import Trial, a_trial, spoiled, valid
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.fault import Blame
from workloads.measure import Standing

__all__ = ("a_trial",)  # fixture

CPU = "/sys/devices/system/cpu"


def services(trial: Trial) -> list[tuple[str, bool]]:
    return [(event["name"], event["running"]) for event in trial.events("service")]


def test_a_daemon_that_would_reset_the_clock_is_stopped_and_started_again(trial: Trial) -> None:
    trial.trouble("clock_reset", after_s=2, service="perfd")
    valid(trial.attempt(freq="mid"))
    stopped, started = services(trial)[:2], services(trial)[2:]
    assert stopped == [("perfd", False), ("vendor.perf-hal-1-0", False)]
    assert sorted(started) == [("perfd", True), ("vendor.perf-hal-1-0", True)]
    trial.settle()


@pytest.mark.parametrize("service", ["core_ctl", "perfd"])
def test_what_switches_cores_off_is_kept_from_it(trial: Trial, service: str) -> None:
    trial.trouble("hotplug", cpu=6, every_s=1, service=service)
    valid(trial.attempt())
    assert trial.phone.must(["cat", f"{CPU}/cpu4/core_ctl/min_cpus"]) == "1\n"
    trial.settle()


def test_daemons_that_guard_against_heat_are_stopped_only_if_asked(trial: Trial) -> None:
    valid(trial.attempt())
    assert "thermal-engine" not in dict(services(trial))
    valid(trial.attempt(fence=2, thermal_daemons="stop"))
    guarded = [running for name, running in services(trial) if name == "thermal-engine"]
    assert guarded == [False, True]
    trial.settle()


def test_a_thread_that_is_moved_voids_the_run(trial: Trial) -> None:
    """As the kernel does it when a core goes: the mask it gets then is the mask it keeps."""
    trial.trouble("migrate", at="run_start")
    report = trial.attempt(cores="little2", freq="low", time_min_s=120)
    spoiled(report, Standing.VOID, "could run on cores ff, asked 3")
    trial.settle()


@pytest.mark.parametrize(
    ("profile", "folder"),
    [
        ("meizu-16t", "/sys/class/kgsl/kgsl-3d0/devfreq"),  # Adreno
        ("google-pixel-8", "/sys/class/devfreq/e82c0000.mali"),  # Mali
    ],
)
def test_the_clock_of_the_gpu_is_held_and_let_go(
    adb: AdbServer, start_phone: StartPhone, desk: Desk, profile: str, folder: str
) -> None:
    there = start_phone(profile)
    phone = open_phone(adb, there.address)
    limits = [f"{folder}/min_freq", f"{folder}/max_freq", f"{folder}/governor"]
    before = phone.read_nodes(limits)
    report = attempt(a_job(phone.known.serial, gpu_freq="mid"), phone, desk).report
    assert report.fault is None, report.fault
    khz = report.resolved.gpu_khz
    assert phone.known.gpu is not None
    assert khz in phone.known.gpu.ladder_khz[1:-1]
    written = [event for event in there.events("sysfs") if event["path"].endswith("/min_freq")]
    assert written[0]["new"].strip() == str((khz or 0) * 1000)
    assert phone.read_nodes(limits) == before


def test_a_phone_as_sold_can_be_asked_for_its_own_steady_clock(
    adb: AdbServer, start_phone: StartPhone, desk: Desk
) -> None:
    there = start_phone("google-pixel-8:stock")
    phone = open_phone(adb, there.address)
    report = attempt(a_job(phone.known.serial, freq="fixed"), phone, desk).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons
    assert [event["enabled"] for event in there.events("fixed_performance")] == [True, False]
    refused = attempt(a_job(phone.known.serial, 2, gpu_freq="high"), phone, desk).report.fault
    assert refused is not None
    assert "cannot be written; leave gpu_freq out" in refused.text


def test_a_shell_in_a_small_cpuset_is_refused_or_moved(
    adb: AdbServer, doomed: VirtualPhone, desk: Desk
) -> None:
    """Without root there is no way out of it; with root our own shell goes, and nobody else."""
    phone = open_phone(adb, doomed.address)
    facts = phone.known
    small = facts.model_copy(update={"shell_cpus": (0, 1, 2, 3), "rooted": False})
    phone.facts = small
    fault = attempt(a_job(facts.serial), phone, desk).report.fault
    assert fault is not None
    assert (fault.blame, "its cpuset leaves them out" in fault.text) == (Blame.REQUEST, True)
    phone.facts = small.model_copy(update={"rooted": True})
    phone.must(["sh", "-c", "echo $PPID >/dev/cpuset/background/cgroup.procs"])
    assert "Cpus_allowed_list:\t0-3" in phone.must(["cat", "/proc/self/status"])
    report = attempt(a_job(facts.serial, 2), phone, desk).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons


STATUS = "Name:\trunner\nCpus_allowed:\t{}\nCpus_allowed_list:\t0-3\n"


def test_every_thread_is_looked_at() -> None:
    """All inside, one beside (the sampler), or somewhere else altogether."""
    nodes = {f"/proc/9/task/{tid}/status": STATUS.format(mask) for tid, mask in MASKS.items()}
    placement = parse_placement(nodes | {"/proc/9/sched": "effective uclamp.max   :   512"})
    assert placement == Placement({9: 0xF0, 10: 0xF0, 11: 0x1, 12: 0xFF}, 512)
    assert strays(placement, 0xF0) == {12: 0xFF}
    assert strays(Placement({1: 0x1, 2: 0x2, 3: 0xF0}), 0xF0) == {1: 0x1, 2: 0x2}


MASKS = {9: "f0", 10: "f0", 11: "01", 12: "00000000,000000ff"}


def test_opponents_are_known_by_name() -> None:
    names = ["perfd", "vendor.perf-hal-2-0", "thermal-engine", "mi_thermald", "zygote", "adbd"]
    said = "".join(f"[init.svc.{name}]: [running]\n" for name in names)
    said += "[init.svc.mpdecision]: [stopped]\n[ro.product.model]: [perfd]\n"
    assert find_opponents(said) == ("mi_thermald", "perfd", "thermal-engine", "vendor.perf-hal-2-0")


def test_a_clamp_of_the_scheduler_is_told_where_the_clock_is_free(
    adb: AdbServer, start_phone: StartPhone, desk: Desk
) -> None:
    there = start_phone("xiaomi-mi-9")
    clamped = open_phone(adb, there.address)
    clamped.must(["sh", "-c", "echo $PPID >/dev/cpuset/top-app/cgroup.procs"])
    clamped.must(["sh", "-c", "echo 50 >/dev/cpuctl/top-app/cpu.uclamp.max"])
    job = a_job(clamped.known.serial, freq="free", cores="little2", time_min_s=120)
    report = attempt(job, clamped, desk).report
    assert report.verdict is not None
    assert "the scheduler clamps it to 512 of 1024" in report.verdict.reasons
