"""Self-test of a phone: it answers, identifies itself, gives temperatures, and accepts files.

Settings that a dead lane left changed are restored first.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from agent.deadline import Deadline
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import CHANGED_NODES, lane_file
from agent.phone.phone_snapshot import take_snapshot
from agent.phone.probe import probe
from agent.phone.runner_install import install_runner
from agent.restore.fence import UNFENCED, clear_fence
from agent.restore.restore_leftovers import restore_leftovers
from agent.restore.watchdog import Watchdog
from kernels.runner_builds import RunnerBuild
from workloads.protocol.faults import FarmError
from workloads.text import safe_text

PINGS = 5
TEST_FILE_BYTES = 256 * 1024
_TEST_FILE = lane_file("selftest")


def run_selftest(
    phone: Phone, state_dir: Path, runner_for: Callable[[str], RunnerBuild]
) -> tuple[bool, str]:
    """Test a phone; return whether it may work, and the findings as text."""
    serial = phone.facts.serial
    try:
        problems = list(_find_problems(phone, state_dir, runner_for))
    except FarmError as error:
        problems = [safe_text(error, 300)]
    if problems:
        return False, safe_text(f"{serial}: {'; '.join(problems)}", 600)
    temp_c = phone.cooling.trace[-1].temp_c if phone.cooling.trace else None
    temperature = f", is at {temp_c:.1f} °C" if temp_c is not None else ""
    return True, f"{serial} answers, is restored, accepts files{temperature}"


def restore_on_request(phone: Phone, state_dir: Path) -> tuple[bool, str]:
    """Restore what a dead lane left changed, whichever host it belonged to."""
    try:
        changed = restore_leftovers(phone, state_dir, ours=True)
        clear_fence(phone)
    except FarmError as error:
        return False, safe_text(error, 600)
    serial = phone.facts.serial
    return True, f"{serial} was restored" if changed else f"{serial} had nothing to restore"


def _find_problems(
    phone: Phone, state_dir: Path, runner_for: Callable[[str], RunnerBuild]
) -> Iterator[str]:
    for _ in range(PINGS):
        phone.shell_checked(["true"], Deadline.after(phone.timeouts.ping_timeout_s))
    restore_leftovers(phone, state_dir)
    before = phone.facts
    facts = probe(phone, runner_for)
    if facts.serial != before.serial:
        yield f"its serial is now {facts.serial}"
    known = {"gauge": before.gauge, "commission": before.commission}
    phone.facts = facts.model_copy(update=known)
    if phone.shell_checked(["getprop", "sys.boot_completed"]).strip() not in {"1", ""}:
        yield "it has not finished booting"
    if facts.cpu_zones and take_snapshot(phone).temp_c is None:
        yield "no CPU zone gives a plausible temperature"
    phone.push(bytes(TEST_FILE_BYTES), _TEST_FILE)
    phone.shell_checked(["rm", "-f", _TEST_FILE])
    yield from _test_watchdog(phone, runner_for)


def _test_watchdog(phone: Phone, runner_for: Callable[[str], RunnerBuild]) -> Iterator[str]:
    if phone.facts.runner_error is not None:
        return
    runner = install_runner(phone, runner_for(phone.facts.abi))
    watchdog = Watchdog(phone, runner, fence=UNFENCED)
    watchdog.start()
    try:
        watchdog.check()
    except FarmError as error:
        yield safe_text(error, 200)
    finally:
        with suppress(FarmError):
            phone.shell(["rm", "-f", lane_file(CHANGED_NODES)])
