"""A phone as sold: no su, no writable clocks, and nodes that the shell may not read."""

from collections.abc import Iterator

import pytest

from agent.virtual.files.selinux import policy_of
from agent.virtual.fleet_server import FleetConfig
from agent.virtual.profiles import load_profile
from agent.virtual.virtual_phone import VirtualPhone
from tests.virtual.adb_host import AdbHost, AdbPhone
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME

CPU = "/sys/devices/system/cpu"


@pytest.fixture(scope="module")
def stock(host: AdbHost) -> Iterator[AdbPhone]:
    with serve_fleet_in_thread(FleetConfig(("xiaomi-mi-9:stock",), speed=EVENT_TIME)) as (
        _,
        (address,),
    ):
        assert "connected" in host.adb("connect", address.address).out
        yield AdbPhone(host, address.address)
        host.adb("disconnect", address.address)


@pytest.mark.parametrize(
    "path",
    [
        "/sys/class/thermal/thermal_zone0/temp",
        "/sys/class/thermal/thermal_zone0/type",
        "/sys/class/thermal/cooling_device0/cur_state",
        "/sys/class/power_supply/battery/current_now",
        "/proc/loadavg",
        f"{CPU}/cpufreq/policy0/cpuinfo_cur_freq",
    ],
)
def test_some_nodes_are_closed_to_the_shell(stock: AdbPhone, path: str) -> None:
    result = stock.run(f"cat {path}")
    assert (result.status, result.err) == (1, f"cat: {path}: Permission denied\n")


@pytest.mark.parametrize(
    "path",
    [
        f"{CPU}/cpufreq/policy0/scaling_cur_freq",
        f"{CPU}/cpufreq/policy0/stats/time_in_state",
        "/sys/class/power_supply/battery/capacity",
        "/proc/stat",
        "/proc/meminfo",
        "/proc/sys/kernel/random/boot_id",
    ],
)
def test_other_nodes_are_readable(stock: AdbPhone, path: str) -> None:
    assert stock.out(f"cat {path}")


def test_unreadable_nodes_are_still_listed(stock: AdbPhone) -> None:
    listed = stock.out("ls -l /sys/class/thermal/thermal_zone0/temp")
    assert listed.startswith("-r--r--r--")


def test_nothing_can_be_changed(stock: AdbPhone) -> None:
    assert stock.run("su -c id").status == 127
    assert stock.run(f"echo performance > {CPU}/cpufreq/policy0/scaling_governor").status == 1
    assert stock.run("stop thermal-engine").status == 1


def test_the_framework_still_reports_temperatures(stock: AdbPhone) -> None:
    dump = stock.out("dumpsys thermalservice")
    assert "Current temperatures from HAL" in dump
    assert "mName=skin" in dump or "mType=3" in dump
    assert "temperature: " in stock.out("dumpsys battery")


@pytest.mark.parametrize(
    ("profile", "policy", "readable"),
    [
        ("samsung-s23-ultra", "SM8450 to SM8550, Android 12 to 15", {"zone", "gpu_model"}),
        ("vivo-x100", "MT6765, Android 13", {"level", "current"}),
        ("xiaomi-mi-9", "guessed", {"level", "gpu_model", "gpu_clock"}),
    ],
)
def test_policies_are_those_of_four_real_phones(
    profile: str, policy: str, readable: set[str]
) -> None:
    """CPU clocks, /proc/stat and files of the shell are allowed in all of them."""
    loaded = load_profile(profile)
    assert policy_of(loaded.soc, loaded.sdk) == policy
    tree = VirtualPhone(loaded.model_copy(update={"rooted": False})).tree
    gpu = "/sys/class/kgsl/kgsl-3d0"
    paths = {
        "zone": "/sys/class/thermal/thermal_zone0/temp",
        "level": "/sys/class/power_supply/battery/capacity",
        "current": "/sys/class/power_supply/battery/current_now",
        "gpu_model": f"{gpu}/gpu_model",
        "gpu_clock": f"{gpu}/gpuclk",
    }
    there = {name: path for name, path in paths.items() if tree.exists(path)}
    allowed = {name for name, path in there.items() if not tree.resolve(path)[0].selinux_denied}
    assert allowed == readable
    for path in (f"{CPU}/cpufreq/policy0/scaling_cur_freq", "/proc/stat"):
        assert not tree.resolve(path)[0].selinux_denied
