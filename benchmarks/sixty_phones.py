"""What sixty phones that cool at once cost one agent: its own processor time and memory.

    python -m benchmarks.sixty_phones

Sixty virtual phones have worked hard for a while; sixty lanes of one process wait for them, look,
fit and predict. The phones run in a process of their own and do not count.
"""

import resource
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from agent.control.cooldown import cool_down
from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone.phone import Phone
from agent.phone.probe import probe
from agent.virtual.mischief.control import ask_control
from agent.virtual.shelf import ShelfPlan, shelf_process
from kernels.manifest import runner_for
from workloads.condition import Condition
from workloads.fault import ConditionUnmet

PHONES = 60
HEATED_S, SECONDS = 60.0, 60.0
COOL = Condition(start_temp_max_c=27.0)  # cooler than they get within this minute


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, AdbServer(Path(name) / "adb") as server:
        folder = Path(name)
        plan = ShelfPlan(("meizu-16t",), count=PHONES, control=folder / "control")
        with shelf_process(plan) as addresses:
            phones = []
            for each in addresses:
                server.connect(each.address, Deadline.after(20))
                phone = Phone(server.open(each.address))
                probe(phone, runner_for)
                phones.append(phone)
            work = {"do": "add", "kind": "other_work", "mask": "ff", "threads": 8}
            ask_control(folder / "control", work)
            time.sleep(HEATED_S)
            ask_control(folder / "control", {"do": "clear"})
            stop = threading.Event()
            lanes = [threading.Thread(target=_wait, args=(phone, stop)) for phone in phones]
            before, began = _cpu_s(), time.monotonic()
            for lane in lanes:
                lane.start()
            time.sleep(SECONDS)
            share = (_cpu_s() - before) / (time.monotonic() - began)
            stop.set()
            for lane in lanes:
                lane.join()
            looks = sum(len(phone.heat.trace) for phone in phones)
            fits = sum(phone.heat.fit() is not None for phone in phones)
            for phone in phones:
                phone.close()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{PHONES} phones cooling: {share:.1%} of one core, {memory_mb:.0f} MB, "
        f"{looks} looks, {fits} fits"
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
