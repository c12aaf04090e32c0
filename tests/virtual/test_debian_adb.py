"""An unmodified virtual phone with Debian's adb."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.virtual.fleet_server import FleetConfig
from tests.virtual.adb_host import AdbHost, adb_host
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME

pytestmark = pytest.mark.slow

DEBIAN_ADB = Path("/usr/bin/adb")


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
