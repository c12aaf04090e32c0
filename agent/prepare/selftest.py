"""The health check: whether a phone answers, keeps still, tells its heat, and takes our files.

It leaves the phone as it should be: what a dead lane left changed is put back first.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from agent.control.cooldown import glance
from agent.control.fence import UNFENCED
from agent.control.guard import Guard, lane_file
from agent.control.journal import restore_leftovers
from agent.deadline import Deadline
from agent.phone.install import install_runner
from agent.phone.phone import Phone
from agent.phone.probe import probe
from kernels.manifest import RunnerBuild
from workloads.fault import FarmError
from workloads.text import safe_text

PINGS, PING_S = 5, 3.0
PUSHED_BYTES = 256 * 1024
_SPARE = lane_file("checkup")


def check_up(
    phone: Phone, state_dir: Path, runner_for: Callable[[str], RunnerBuild]
) -> tuple[bool, str]:
    """Look a phone over; say whether it may work, and what was found."""
    serial = phone.known.serial
    try:
        found = list(_complaints(phone, state_dir, runner_for))
    except FarmError as error:
        found = [safe_text(error, 300)]
    if found:
        return False, safe_text(f"{serial}: {'; '.join(found)}", 600)
    seen = phone.heat.trace[-1].temp_c if phone.heat.trace else None
    heat = f" at {seen:.1f} °C" if seen is not None else ""
    return True, f"{serial} answers, is as it should be and takes files{heat}."


def put_back_by_hand(phone: Phone, state_dir: Path) -> tuple[bool, str]:
    """Put back what a dead lane left changed, whoever's it was."""
    try:
        changed = restore_leftovers(phone, state_dir, ours=True)
    except FarmError as error:
        return False, safe_text(error, 600)
    serial = phone.known.serial
    return True, f"{serial} was put back." if changed else f"{serial} had nothing to put back."


def _complaints(
    phone: Phone, state_dir: Path, runner_for: Callable[[str], RunnerBuild]
) -> Iterator[str]:
    for _ in range(PINGS):
        phone.must(["true"], Deadline.after(PING_S))
    restore_leftovers(phone, state_dir)
    known = phone.known
    facts = probe(phone, runner_for)
    if facts.serial != known.serial:
        yield f"it says now that it is {facts.serial}"
    phone.facts = facts.model_copy(update={"gauge": known.gauge})
    if phone.must(["getprop", "sys.boot_completed"]).strip() not in {"1", ""}:
        yield "it has not finished booting"
    if facts.cpu_zones and glance(phone).temp_c is None:
        yield "no CPU zone gives a believable value"
    phone.push(bytes(PUSHED_BYTES), _SPARE)
    phone.must(["rm", "-f", _SPARE])
    yield from _guard_complaint(phone, runner_for)


def _guard_complaint(phone: Phone, runner_for: Callable[[str], RunnerBuild]) -> Iterator[str]:
    if phone.known.runner_absent is not None:
        return
    guard = Guard(phone, install_runner(phone, runner_for(phone.known.abi)), fence=UNFENCED)
    guard.start()
    try:
        guard.check()
    except FarmError as error:
        yield safe_text(error, 200)
    finally:
        with suppress(FarmError):
            phone.shell(["rm", "-f", lane_file("restore")])
