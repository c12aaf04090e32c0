"""Follows deploy/README.md from nothing to a lab, on two computers in network namespaces."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.two_computers import ROOT, Computer, make_root, make_wheelhouse, run

NEEDED = ("mmdebstrap", "ip", "nsenter", "unshare")
MISSING = [name for name in NEEDED if not shutil.which(name)]
CENTRE, HOST = "10.98.7.1", "10.98.7.2"
HOSTS = f"{CENTRE} centre.lab\n{HOST} host-a\n"
README = (ROOT / "deploy/README.md").read_text()
STEPS = README.partition("## A lab with TLS")[2]
BRIDGE = f"farm-{os.getpid()}"[:15]
PREPARED = ("sudo apt install", "git clone", "systemctl status")  # the root folders have them

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING) or os.getuid() != 0, reason=f"needs root and {NEEDED}"),
]


def steps(number: int) -> list[list[str]]:
    """Return the commands of a step of the README, block by block."""
    section = re.split(r"(?m)^### ", STEPS)[number].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [
        [line for line in block.splitlines() if not line.startswith(PREPARED)] for block in blocks
    ]


@pytest.fixture(scope="module")
def computers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Computer, Computer]]:
    folder = tmp_path_factory.mktemp("computers")
    make_wheelhouse(folder / "wheels", sys.executable)
    make_root(folder / "centre", folder / "wheels")
    run("cp", "-a", folder / "centre", folder / "host")
    try:
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "link", "set", BRIDGE, "up")
    except AssertionError as error:
        pytest.skip(f"network namespaces are not allowed here: {error}")
    found = []
    try:
        for name, address in (("centre", CENTRE), ("host-a", HOST)):
            found.append(Computer(name, address, folder / name.removesuffix("-a"), BRIDGE, HOSTS))
        yield found[0], found[1]
    finally:
        for computer in found:
            computer.stop()
        subprocess.run(["ip", "link", "del", BRIDGE], check=False)


def wait_until(question: str, computer: Computer, pattern: str, seconds: float = 120) -> str:
    """Repeat a command until its answer has a text."""
    deadline = time.monotonic() + seconds
    while True:
        answer = computer.shell(question, check=False)
        if re.search(pattern, answer):
            return answer
        assert time.monotonic() < deadline, f"{question}: {answer}"
        time.sleep(2)


def test_a_lab_from_nothing(computers: tuple[Computer, Computer], tmp_path: Path) -> None:
    centre, host = computers
    (install,), (doctor,) = steps(1)
    assert install == "sudo deploy/install-centre.sh centre.lab"
    centre.shell(install)
    wait_until("sudo farm status", centre, "hosts")
    checked = centre.shell(doctor, check=False)
    assert "broker" in checked

    host_blocks = steps(3)
    (install_host,), (add,), (_, start), (hosts, phones, check) = host_blocks
    host.shell(install_host)
    printed = centre.shell(add).strip()
    assert re.match(r"FARM_TOKEN=\S+ farm host join https://centre.lab:8400 --authority ", printed)
    host.shell(f"sudo {printed}")
    again = host.shell(f"sudo {printed}", check=False)
    assert "once" in again or "used" in again or "unknown" in again, again

    ready = tmp_path / "phones.json"
    virtual = [sys.executable, "-m", "orchestrator", "virtual", "up", "meizu-16t", "xiaomi-mi-9"]
    process = host.popen(*virtual, "--count", "5", "--speed", "events", "--ready-file", ready)
    try:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.2)
        addresses = json.dumps([phone["address"] for phone in json.loads(ready.read_text())])
        host.shell(f"sed -i '/^\\[agent\\]/a connect = {addresses}' /var/lib/farmhand/lab/lab.toml")
        host.shell(start)
        wait_until(hosts, centre, "host-a")
        wait_until(f"{phones} --json | grep -c '\"idle\"'", centre, "^10$")
        serial = json.loads(centre.shell(f"{phones} --json"))[0]["serial"]
        centre.shell(check.replace("SERIAL", serial))
        follow_people(centre, host, tmp_path)
        (backup,) = re.findall(r"`(sudo farm store backup \S+)`", README)
        centre.shell(backup)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{centre.logs()}\n{host.logs()}") from error
    finally:
        process.terminate()
        process.wait()


def follow_people(centre: Computer, host: Computer, folder: Path) -> None:
    """Give two people their tokens; they use this checkout in the network of the host."""
    (anna, student), (export, status, submit, _) = steps(4)
    secrets = [centre.shell(command).split()[0] for command in (anna, student)]
    folder.joinpath("ca.pem").write_text(centre.shell("cat /var/lib/farmhand/lab/tls/ca.pem"))
    farm = f"{sys.executable} -P -m orchestrator"

    def as_person(secret: str, command: str) -> str:
        variables = export.replace("FARM_TOKEN=...", f"FARM_TOKEN={secret}")
        variables = variables.replace("ca.pem", str(folder / "ca.pem"))
        return host.outside(
            f"{variables}; cd {ROOT}; {command.replace('./farm', farm)} 2>&1; echo $?"
        )

    assert "10" in as_person(secrets[1], status)
    refused = as_person(secrets[1], submit)
    assert "needs the role operator" in refused
    assert refused.split()[-1] == "11"
    assert "queued" in as_person(secrets[0], submit)
    stranger = host.outside(f"FARM_API=https://centre.lab:8400 FARM_TOKEN=x {farm} status")
    assert "certificate" in stranger
