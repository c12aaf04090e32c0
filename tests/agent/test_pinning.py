"""Pinned clocks and cores: competing daemons are stopped, and what cannot be pinned is reported."""

import pytest

from agent.collect.thread_affinity import ThreadAffinity, parse_thread_affinity, stray_threads
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.gpu_probe import gpu_limits
from agent.phone.vendor_daemons import find_perf_daemons, running_services
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.lane_harness import LaneHarness, assert_reason, assert_valid
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.protocol.faults import Blame
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity

CPU = "/sys/devices/system/cpu"


def services(lane_harness: LaneHarness) -> list[tuple[str, bool]]:
    return [(event["name"], event["running"]) for event in lane_harness.events("init_service")]


def test_a_daemon_that_would_reset_the_clock_is_stopped_and_started_again(
    lane_harness: LaneHarness,
) -> None:
    lane_harness.inject("clock_reset", after_s=2, service="perfd")
    assert_valid(lane_harness.run_attempt(freq="mid"))
    stopped, started = services(lane_harness)[:2], services(lane_harness)[2:]
    assert stopped == [("perfd", False), ("vendor.perf-hal-1-0", False)]
    assert sorted(started) == [("perfd", True), ("vendor.perf-hal-1-0", True)]
    lane_harness.verify_recovery()


@pytest.mark.parametrize("service", ["core_ctl", "perfd"])
def test_services_that_switch_cores_off_are_stopped(
    lane_harness: LaneHarness, service: str
) -> None:
    lane_harness.inject("hotplug", cpu=6, every_s=1, service=service)
    assert_valid(lane_harness.run_attempt())
    assert lane_harness.phone.shell_checked(["cat", f"{CPU}/cpu4/core_ctl/min_cpus"]) == "1\n"
    lane_harness.verify_recovery()


def test_thermal_daemons_are_stopped_only_on_request(
    lane_harness: LaneHarness,
) -> None:
    assert_valid(lane_harness.run_attempt())
    assert "thermal-engine" not in dict(services(lane_harness))
    assert_valid(lane_harness.run_attempt(fence=2, thermal_daemons="stop"))
    thermal = [running for name, running in services(lane_harness) if name == "thermal-engine"]
    assert thermal == [False, True]
    lane_harness.verify_recovery()


def test_a_thread_that_is_moved_voids_the_run(lane_harness: LaneHarness) -> None:
    """The kernel moves threads off a core that goes offline, and they keep the new mask."""
    lane_harness.inject("migrate", at="run_start")
    report = lane_harness.run_attempt(cores="little2", freq="low", time_min_s=120)
    assert_reason(report, Validity.VOID, ReasonCode.THREAD_ON_OTHER_CORES)
    lane_harness.verify_recovery()


@pytest.mark.parametrize(
    ("profile", "folder"),
    [
        ("meizu-16t", "/sys/class/kgsl/kgsl-3d0/devfreq"),  # Adreno
        ("google-pixel-8", "/sys/class/misc/mali0/device"),  # Mali in Tensor, in kHz
    ],
)
def test_the_clock_of_the_gpu_is_pinned_and_restored(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext, profile: str, folder: str
) -> None:
    virtual_phone = start_phone(profile)
    phone = open_phone(adb, virtual_phone.address)
    gpu = phone.facts.gpu
    assert gpu is not None
    assert gpu.folder == folder
    limits = [*gpu_limits(gpu), f"{folder}/governor"]
    before = phone.read_nodes(limits)
    report = run_attempt(a_job(phone.facts.serial, gpu_freq="mid"), phone, context).report
    assert report.fault is None, report.fault
    khz = report.applied.gpu_khz
    assert khz in gpu.ladder_khz[1:-1]
    writes = virtual_phone.events("sysfs_write")
    written = [event for event in writes if event["path"] == limits[0]]
    assert written[0]["new"].strip() == str((khz or 0) * 1000 // gpu.unit_hz)
    assert phone.read_nodes(limits) == before


def test_an_unrooted_phone_uses_its_sustained_performance_mode(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    virtual_phone = start_phone("google-pixel-8:stock")
    phone = open_phone(adb, virtual_phone.address)
    report = run_attempt(a_job(phone.facts.serial, freq="fixed"), phone, context).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons
    assert [event["enabled"] for event in virtual_phone.events("fixed_performance")] == [
        True,
        False,
    ]
    pinned_gpu = a_job(phone.facts.serial, 2, gpu_freq="high")
    refused = run_attempt(pinned_gpu, phone, context).report.fault
    assert refused is not None
    assert (refused.blame, refused.stage) == (Blame.REQUEST, Stage.RESOLVE)


def test_a_shell_in_a_small_cpuset_is_refused_or_moved(
    adb: AdbServer, disposable_phone: VirtualPhone, context: LaneContext
) -> None:
    """Without root a shell cannot leave its cpuset; with root it moves itself and nothing else."""
    phone = open_phone(adb, disposable_phone.address)
    facts = phone.facts
    small = facts.model_copy(update={"shell_cpus": (0, 1, 2, 3), "rooted": False})
    phone.facts = small
    fault = run_attempt(a_job(facts.serial), phone, context).report.fault
    assert fault is not None
    assert (fault.blame, fault.stage) == (Blame.REQUEST, Stage.RESOLVE)
    phone.facts = small.model_copy(update={"rooted": True})
    phone.shell_checked(["sh", "-c", "echo $PPID >/dev/cpuset/background/cgroup.procs"])
    assert "Cpus_allowed_list:\t0-3" in phone.shell_checked(["cat", "/proc/self/status"])
    report = run_attempt(a_job(facts.serial, 2), phone, context).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons


def test_clocks_are_pinned_where_the_kernel_has_a_folder_per_core(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    virtual_phone = start_phone("huawei-honor-8")
    phone = open_phone(adb, virtual_phone.address)
    job = a_job(phone.facts.serial, freq="high", cores="big2")
    report = run_attempt(job, phone, context).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons
    writes = [event for event in virtual_phone.events("sysfs_write") if "cpufreq" in event["path"]]
    assert {event["path"].rpartition("/")[0] for event in writes} == {
        "/sys/devices/system/cpu/cpu4/cpufreq"
    }
    assert phone.read_nodes([f"{CORE4}/scaling_governor"])[f"{CORE4}/scaling_governor"] == (
        "interactive"
    )


CORE4 = "/sys/devices/system/cpu/cpu4/cpufreq"
STATUS = "Name:\trunner\nCpus_allowed:\t{}\nCpus_allowed_list:\t0-3\n"


def test_every_thread_is_checked() -> None:
    nodes = {f"/proc/9/task/{tid}/status": STATUS.format(mask) for tid, mask in MASKS.items()}
    affinity = parse_thread_affinity(nodes | {"/proc/9/sched": "effective uclamp.max   :   512"})
    assert affinity == ThreadAffinity({9: 0xF0, 10: 0xF0, 11: 0x1, 12: 0xFF}, 512)
    assert stray_threads(affinity, 0xF0) == {12: 0xFF}
    assert stray_threads(ThreadAffinity({1: 0x1, 2: 0x2, 3: 0xF0}), 0xF0) == {1: 0x1, 2: 0x2}
    pinned = ThreadAffinity({1: 0x80, 2: 0x40, 3: 0xF})
    assert not stray_threads(pinned, 0xF0)


MASKS = {9: "f0", 10: "f0", 11: "01", 12: "00000000,000000ff"}


def test_daemons_that_change_clocks_are_known_by_name() -> None:
    names = ["perfd", "vendor.perf-hal-2-0", "thermal-engine", "mi_thermald", "zygote", "adbd"]
    names += ["perfgenius-hal-1-0", "uniperf-hal-1-0", "thermalloadalgod", "thermal"]
    names += ["horae", "vendor.urcc-hal-aidl", "mtkpower-hal-1-0"]
    names += ["thermalservice", "performanced", "power-hal-1-1"]  # do not set clocks
    properties = "".join(f"[init.svc.{name}]: [running]\n" for name in names)
    properties += "[init.svc.mpdecision]: [stopped]\n[ro.product.model]: [perfd]\n"
    assert find_perf_daemons(running_services(properties)) == (
        "horae",
        "mi_thermald",
        "mtkpower-hal-1-0",
        "perfd",
        "perfgenius-hal-1-0",
        "thermal",
        "thermal-engine",
        "thermalloadalgod",
        "uniperf-hal-1-0",
        "vendor.perf-hal-2-0",
        "vendor.urcc-hal-aidl",
    )


def test_a_clamp_of_the_scheduler_is_reported_where_the_clock_is_free(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    virtual_phone = start_phone("xiaomi-mi-9")
    phone = open_phone(adb, virtual_phone.address)
    phone.shell_checked(["sh", "-c", "echo $PPID >/dev/cpuset/top-app/cgroup.procs"])
    phone.shell_checked(["sh", "-c", "echo 50 >/dev/cpuctl/top-app/cpu.uclamp.max"])
    job = a_job(phone.facts.serial, freq="free", cores="little2", time_min_s=120)
    report = run_attempt(job, phone, context).report
    assert report.verdict is not None
    (clamped,) = [
        reason for reason in report.verdict.reasons if reason.code is ReasonCode.UTILISATION_CLAMPED
    ]
    assert clamped.values == {"clamp": 512, "limit": 1024}
