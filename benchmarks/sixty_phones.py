"""The cost of sixty cooling phones for one agent: its processor time and memory.

    python -m benchmarks.sixty_phones

Sixty virtual phones have been under load; sixty lanes of one process wait for them: they take
snapshots, fit and predict. The phones run in another process and do not count.
"""

import resource
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.probe import probe
from agent.prepare.cooldown import cool_down
from agent.virtual.fleet_server import FleetConfig
from agent.virtual.mischief.control_socket import send_entry
from kernels.runner_builds import runner_for
from tests.virtual.running_fleet import serve_fleet_in_process
from workloads.protocol.condition import Condition
from workloads.protocol.faults import ConditionUnmet

PHONES = 60
HEATED_S, SECONDS = 60.0, 60.0
COOL = Condition(start_temp_max_c=27.0)  # cooler than they become within this minute


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, AdbServer(Path(name) / "adb") as server:
        folder = Path(name)
        plan = FleetConfig(("meizu-16t",), count=PHONES, control=folder / "control")
        with serve_fleet_in_process(plan) as addresses:
            phones = []
            for phone_address in addresses:
                server.connect(phone_address.address, Deadline.after(20))
                phone = Phone(server.open(phone_address.address))
                probe(phone, runner_for)
                phones.append(phone)
            work = {"kind": "other_work", "mask": "ff", "threads": 8}
            send_entry(folder / "control", work)
            time.sleep(HEATED_S)
            send_entry(folder / "control", {})
            stop = threading.Event()
            lanes = [threading.Thread(target=_wait, args=(phone, stop)) for phone in phones]
            before, started = _cpu_s(), time.monotonic()
            for lane in lanes:
                lane.start()
            time.sleep(SECONDS)
            share = (_cpu_s() - before) / (time.monotonic() - started)
            stop.set()
            for lane in lanes:
                lane.join()
            samples = sum(len(phone.cooling.trace) for phone in phones)
            fits = sum(phone.cooling.fit() is not None for phone in phones)
            for phone in phones:
                phone.close()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{PHONES} phones cooling: {share:.1%} of one core, {memory_mb:.0f} MB, "
        f"{samples} samples, {fits} fits"
    )


def _wait(phone: Phone, stop: threading.Event) -> None:
    def sleep(seconds: float) -> None:
        if stop.wait(seconds):
            raise ConditionUnmet("enough")

    with suppress(ConditionUnmet):
        cool_down(phone, COOL, sleep, lambda seen, ready: None)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
