"""Tools that know nothing of us drive a virtual phone unmodified: devlib, wlauto, Debian's adb."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.virtual.shelf import ShelfPlan, shelf_in_thread
from tests.virtual.host import ADB, AdbHost, PhoneAt, adb_host

pytestmark = pytest.mark.slow

DEBIAN_ADB = Path("/usr/bin/adb")

DEVLIB = """
import json, sys
from devlib import AndroidTarget
from devlib.exception import TargetStableError
modules = ["cpufreq", "hotplug"]
target = AndroidTarget(
    connection_settings={"device": sys.argv[1]}, load_default_modules=False, modules=modules
)
target.setup()
told = {"abi": target.abi, "rooted": target.is_rooted, "cpus": target.number_of_cpus}
target.cpufreq.set_governor(4, "performance")
told["governor"] = target.cpufreq.get_governor(4)
target.cpufreq.set_governor(4, "userspace")
told["asked"] = target.cpufreq.list_frequencies(4)[3]
target.cpufreq.set_frequency(4, told["asked"])
told["got"] = target.cpufreq.get_frequency(4)
try:
    target.write_value("/sys/devices/system/cpu/cpu4/cpufreq/scaling_governor", "nonsense")
except TargetStableError:
    told["nonsense"] = "refused"
target.hotplug.offline(5)
told["online"] = target.list_online_cpus()
told["said"] = target.background("sleep 1; echo done").communicate()[0].decode()
target.push(__file__, target.working_directory + "/pushed.py")
target.pull(target.working_directory + "/pushed.py", sys.argv[2])
read = target.read_tree_values("/sys/class/thermal", depth=2)
told["zones"] = len([name for name in read if "zone" in name])
told["pids"] = target.get_pids_of("adbd")
print(json.dumps(told))
"""

AGENDA = """
config:
  device: generic_android
  device_config: {{device: '{address}', load_default_modules: false, modules: [],
                   disable_selinux: false}}
  iterations: 2
  augmentations: ['~~', csv]
  reboot_policy: never
workloads:
  - name: shellscript
    params: {{script_file: {script}}}
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with devlib and wlauto, and nothing of ours."""
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin" / "pip", "install", "-q", "setuptools", "devlib", "wlauto"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing to install devlib from: {done.stderr[-200:]}")
    # devlib refuses to start without an aapt; an empty one is enough.
    aapt = folder / "bin" / "aapt"
    aapt.write_text("#!/bin/sh\n")
    aapt.chmod(0o755)
    (folder / "bin" / "adb").symlink_to(ADB)
    return folder


def run_tool(host: AdbHost, tools: Path, *words: str | Path) -> str:
    env = host.env | {"PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=120, check=False, cwd=tools
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr + done.stdout


def test_devlib_sets_and_reads_back_clocks(
    host: AdbHost, phone: PhoneAt, tools: Path, tmp_path: Path
) -> None:
    script = tmp_path / "drive.py"
    script.write_text(DEVLIB)
    back = tmp_path / "back.py"
    said = run_tool(host, tools, tools / "bin" / "python", script, phone.address, back)
    told = json.loads(said.splitlines()[-1])
    assert ("arm64", True, 8) == (told["abi"], told["rooted"], told["cpus"])
    assert ("performance", "refused", "done\n") == (
        told["governor"],
        told["nonsense"],
        told["said"],
    )
    assert told["asked"] == told["got"]
    assert 5 not in told["online"]
    assert told["zones"] == int(phone.out("ls -d /sys/class/thermal/thermal_zone* | wc -l"))
    assert script.read_bytes() == back.read_bytes()
    phone.root("echo 1 > /sys/devices/system/cpu/cpu5/online")
    assert phone.out("cat /sys/devices/system/cpu/cpu4/cpufreq/scaling_governor") == "userspace"
    phone.root("echo schedutil > /sys/devices/system/cpu/cpu4/cpufreq/scaling_governor")


def test_workload_automation_runs_an_agenda(
    host: AdbHost, phone: PhoneAt, tools: Path, tmp_path: Path
) -> None:
    script = tmp_path / "noop.sh"
    script.write_text("#!/bin/sh\necho job\n")
    agenda = tmp_path / "agenda.yaml"
    agenda.write_text(AGENDA.format(address=phone.address, script=script))
    wa = tools / "bin" / "wa"
    said = run_tool(host, tools, wa, "run", agenda, "-f", "-d", tmp_path / "out")
    assert "2 OK" in said


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbHost]:
    if not DEBIAN_ADB.exists() or shutil.which("dpkg") is None:
        pytest.skip("Debian's adb is not here")
    with adb_host(tmp_path_factory.mktemp("adb29"), binary=DEBIAN_ADB) as running:
        yield running


def test_debians_adb_drives_it(debian: AdbHost, tmp_path: Path) -> None:
    with shelf_in_thread(ShelfPlan(("meizu-16t",), speed=100.0)) as (_, (there,)):
        address = there.address
        assert "connected" in debian.adb("connect", address).out
        assert (5, "out\n", "err\n") == debian.adb(
            "-s", address, "shell", "echo out; echo err >&2; exit 5"
        )
        here, back = tmp_path / "here", tmp_path / "back"
        here.write_bytes(os.urandom(3_000_001))
        assert debian.adb("-s", address, "push", str(here), "/data/local/tmp/x").status == 0
        assert debian.adb("-s", address, "pull", "/data/local/tmp/x", str(back)).status == 0
        assert here.read_bytes() == back.read_bytes()
        assert "product:meizu_16T_CN model:16T" in debian.adb("devices", "-l").out
        assert debian.adb("-s", address, "reverse", "tcp:6100", "tcp:6101").status == 0
        assert "tcp:6100" in debian.adb("-s", address, "reverse", "--list").out
        assert "production builds" in debian.adb("-s", address, "root").out
        refused = debian.adb("-s", address, "install", str(here.rename(tmp_path / "a.apk")))
        assert "INSTALL_FAILED" in refused.out + refused.err
        debian.adb("disconnect", address)
