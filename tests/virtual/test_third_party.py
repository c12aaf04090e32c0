"""Third-party tools with an unmodified virtual phone: devlib, wlauto and Debian's adb."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.virtual.fleet_server import FleetConfig
from tests.virtual.adb_host import ADB, AdbHost, AdbPhone, adb_host
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME

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
facts = {"abi": target.abi, "rooted": target.is_rooted, "cpus": target.number_of_cpus}
target.cpufreq.set_governor(4, "performance")
facts["governor"] = target.cpufreq.get_governor(4)
target.cpufreq.set_governor(4, "userspace")
facts["asked"] = target.cpufreq.list_frequencies(4)[3]
target.cpufreq.set_frequency(4, facts["asked"])
facts["got"] = target.cpufreq.get_frequency(4)
try:
    target.write_value("/sys/devices/system/cpu/cpu4/cpufreq/scaling_governor", "nonsense")
except TargetStableError:
    facts["nonsense"] = "refused"
target.hotplug.offline(5)
facts["online"] = target.list_online_cpus()
facts["background"] = target.background("sleep 1; echo done").communicate()[0].decode()
target.push(__file__, target.working_directory + "/pushed.py")
target.pull(target.working_directory + "/pushed.py", sys.argv[2])
read = target.read_tree_values("/sys/class/thermal", depth=2)
facts["zones"] = len([name for name in read if "zone" in name])
facts["pids"] = target.get_pids_of("adbd")
print(json.dumps(facts))
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
    """A Python environment with devlib and wlauto only."""
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin" / "pip", "install", "-q", "setuptools", "devlib", "wlauto"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"devlib cannot be installed: {done.stderr[-200:]}")
    # devlib does not start without aapt; an empty script is enough.
    aapt = folder / "bin" / "aapt"
    aapt.write_text("#!/bin/sh\n")
    aapt.chmod(0o755)
    (folder / "bin" / "adb").symlink_to(ADB)
    return folder


def run_tool(host: AdbHost, tools: Path, *words: str | Path) -> str:
    env = host.env | {"PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=600, check=False, cwd=tools
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr + done.stdout


def test_devlib_sets_and_reads_back_clocks(
    host: AdbHost, phone: AdbPhone, tools: Path, tmp_path: Path
) -> None:
    script = tmp_path / "drive.py"
    script.write_text(DEVLIB)
    pulled = tmp_path / "back.py"
    output = run_tool(host, tools, tools / "bin" / "python", script, phone.address, pulled)
    facts = json.loads(output.splitlines()[-1])
    assert (facts["abi"], facts["rooted"], facts["cpus"]) == ("arm64", True, 8)
    assert (
        facts["governor"],
        facts["nonsense"],
        facts["background"],
    ) == ("performance", "refused", "done\n")
    assert facts["got"] == facts["asked"]
    assert 5 not in facts["online"]
    assert facts["zones"] == int(phone.out("ls -d /sys/class/thermal/thermal_zone* | wc -l"))
    assert pulled.read_bytes() == script.read_bytes()
    phone.root("echo 1 > /sys/devices/system/cpu/cpu5/online")
    assert phone.out("cat /sys/devices/system/cpu/cpu4/cpufreq/scaling_governor") == "userspace"
    phone.root("echo schedutil > /sys/devices/system/cpu/cpu4/cpufreq/scaling_governor")


def test_workload_automation_runs_an_agenda(
    host: AdbHost, phone: AdbPhone, tools: Path, tmp_path: Path
) -> None:
    script = tmp_path / "noop.sh"
    script.write_text("#!/bin/sh\necho job\n")
    agenda = tmp_path / "agenda.yaml"
    agenda.write_text(AGENDA.format(address=phone.address, script=script))
    wa = tools / "bin" / "wa"
    output = run_tool(host, tools, wa, "run", agenda, "-f", "-d", tmp_path / "out")
    assert "2 OK" in output


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbHost]:
    if not DEBIAN_ADB.exists() or shutil.which("dpkg") is None:
        pytest.skip("Debian's adb is not installed")
    with adb_host(tmp_path_factory.mktemp("adb29"), binary=DEBIAN_ADB) as running:
        yield running


def test_debians_adb_controls_the_phone(debian: AdbHost, tmp_path: Path) -> None:
    with serve_fleet_in_thread(FleetConfig(("meizu-16t",), speed=EVENT_TIME)) as (_, (started,)):
        address = started.address
        assert "connected" in debian.adb("connect", address).out
        assert debian.adb("-s", address, "shell", "echo out; echo err >&2; exit 5") == (
            5,
            "out\n",
            "err\n",
        )
        source, pulled = tmp_path / "here", tmp_path / "back"
        source.write_bytes(os.urandom(3_000_001))
        assert debian.adb("-s", address, "push", str(source), "/data/local/tmp/x").status == 0
        assert debian.adb("-s", address, "pull", "/data/local/tmp/x", str(pulled)).status == 0
        assert pulled.read_bytes() == source.read_bytes()
        assert "product:meizu_16T_CN model:16T" in debian.adb("devices", "-l").out
        assert "production builds" in debian.adb("-s", address, "root").out
        refused = debian.adb("-s", address, "install", str(source.rename(tmp_path / "a.apk")))
        assert "INSTALL_FAILED" in refused.out + refused.err
        debian.adb("disconnect", address)
