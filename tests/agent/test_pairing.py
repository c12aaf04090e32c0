"""Pairing with a phone over Wi-Fi, by the stock adb: the right code, and a wrong one."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from tests.agent.pairing_server import PairingServer, certificate_file
from tests.agent.wireless_phone import CODE, GUID
from tests.virtual.adb_host import wait_until
from workloads.protocol.faults import PhoneTrouble

NEEDED = ("ip", "unshare")


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[PairingServer]:
    server = PairingServer(CODE, GUID, certificate_file(tmp_path))
    yield server
    server.close()


def test_the_right_code_gives_the_phone_the_key_of_this_host(
    adb: AdbServer, phone: PairingServer
) -> None:
    service = adb.pair(phone.address, CODE, Deadline.after(120))
    assert service == f"{GUID}._adb-tls-connect._tcp"
    wait_until(lambda: bool(phone.host_keys), "the phone has the key")
    (key,) = phone.host_keys
    assert len(key) > 500  # of RSA, in the format of adb


def test_a_wrong_code_is_refused_in_one_sentence(adb: AdbServer, phone: PairingServer) -> None:
    with pytest.raises(PhoneTrouble, match="compare address and code with the phone's screen"):
        adb.pair(phone.address, "111111", Deadline.after(120))
    assert not phone.host_keys


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="a network namespace needs root")
@pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"needs {' and '.join(NEEDED)}")
def test_a_paired_phone_is_found_by_mdns_and_joins_the_lab(tmp_path: Path) -> None:
    """The phone announces its service before it is paired, as wireless debugging does."""
    words = ["unshare", "--net", sys.executable, "-m", "tests.agent.wireless_phone", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^VM16T0001 is connected at 127\.0\.0\.1:\d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^VM16T0001\tMeizu 16T\t.*\tidle\t", done.stdout, re.MULTILINE)
