"""Each guard is switched off once, in a copy of the house, and then its test has to fail.

A suite that passes without a guard does not test it. By default only what each guard looks like is
looked up; the copies are slow.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("agent", "kernels", "orchestrator", "workloads", "tests", "examples", "pyproject.toml")


class Guard(NamedTuple):
    """What keeps a promise: where it stands, how it is switched off, and who notices."""

    promise: str
    file: str
    with_it: str
    without: str
    test: str


STORE = "orchestrator/store"
FIRST_TABLES = f"{STORE}/migrations/versions/0001_first_tables.py"
GUARDS = (
    Guard(
        "the database refuses two leases on a phone",
        FIRST_TABLES,
        '["phone"],\n            unique=True',
        '["phone"],\n            unique=False',
        "store/test_backlog.py::test_the_database_itself_refuses_two_leases_on_a_phone[sqlite]",
    ),
    Guard(
        "the database refuses two accepted reports of a run",
        FIRST_TABLES,
        '["trial", "repeat"],\n            unique=True',
        '["trial", "repeat"],\n            unique=False',
        "store/test_ingest.py::test_the_database_itself_refuses_two_accepted_reports[sqlite]",
    ),
    Guard(
        "an older attempt does not count",
        f"{STORE}/ingest.py",
        "asked = (row.attempt, row.phone,",
        "asked = (report.run.attempt, row.phone,",
        "store/test_ingest.py::test_a_report_of_an_older_attempt_is_kept_but_does_not_count[sqlite]",
    ),
    Guard(
        "a host reports for itself",
        f"{STORE}/ingest.py",
        "row.phone, row.host,",
        "row.phone, report.host,",
        "store/test_ingest.py::test_a_host_cannot_report_for_another[sqlite]",
    ),
    Guard(
        "a doubled report is stored once",
        f"{STORE}/ingest.py",
        "if (key.trial, key.repeat, key.attempt) in known:",
        "if not known and False:",
        "store/test_ingest.py::test_a_report_that_comes_three_times_is_stored_once[sqlite]",
    ),
    Guard(
        "a heartbeat renews its own attempt",
        f"{STORE}/leases.py",
        "named.get((each.trial, each.repeat, each.attempt), 0.0)",
        "max(named.values(), default=0.0)",
        "store/test_backlog.py::test_a_heartbeat_renews_its_attempt_and_no_other[sqlite]",
    ),
    Guard(
        "nothing begins after a pause",
        f"{STORE}/leases.py",
        "return [pick for pick in picks if pick.sweep in active and pick.phone in good]",
        "return [pick for pick in picks if active or good or True]",
        "store/test_control.py::test_what_is_paused_between_look_and_lease_is_not_begun[sqlite]",
    ),
    Guard(
        "a clock that was set back keeps no lease alive",
        f"{STORE}/leases.py",
        "min(wanted, latest)",
        "max(wanted, 0.0 * latest)",
        "store/test_promises.py::"
        "test_a_clock_that_was_set_back_does_not_keep_a_lost_lease_alive[sqlite]",
    ),
    Guard(
        "a job that never reached its host says nothing of its case",
        f"{STORE}/leases.py",
        "if lost in begun:",
        "if lost:",
        "store/test_promises.py::"
        "test_a_job_that_never_reached_its_host_says_nothing_of_its_case[sqlite]",
    ),
    Guard(
        "a case that kills on two phones is held",
        "orchestrator/plan/poison.py",
        "PHONES = 2",
        "PHONES = 99",
        "store/test_promises.py::"
        "test_a_case_that_kills_attempts_on_two_phones_is_held_with_the_evidence[sqlite]",
    ),
    Guard(
        "a phone that two hosts claim is nobody's",
        "orchestrator/dispatch/scheduler.py",
        "if hosts > 1:",
        "if hosts > 99:",
        "dispatch/test_look.py::test_a_phone_that_two_hosts_claim_is_nobodys",
    ),
    Guard(
        "a host is told the time in its own clock",
        "orchestrator/dispatch/scheduler.py",
        "if abs(skew) > lease_s / 2}",
        "if abs(skew) > 1e9}",
        "dispatch/test_look.py::test_a_host_whose_clock_is_off_is_told_the_time_in_its_own_clock",
    ),
    Guard(
        "a doubled job is begun once",
        "agent/spool.py",
        "return bool(count)",
        "return count >= 0",
        "host/test_spool.py::test_a_run_begins_once",
    ),
    Guard(
        "an agent knows what it was at when it died",
        "agent/spool.py",
        "SELECT job FROM started WHERE ended = 0",
        "SELECT job FROM started WHERE ended = 9",
        "host/test_spool.py::test_what_was_begun_before_a_kill_is_known_afterwards",
    ),
    Guard(
        "a report is sent until it is confirmed",
        "agent/post.py",
        "(now + min(self._resend_s * 2**count, RESEND_MAX_S), count + 1)",
        "(now + 3600, count + 1)",
        "host/test_post.py::test_a_parcel_is_sent_until_the_centre_confirms_it",
    ),
    Guard(
        "a late lane is kept out by the phone",
        "agent/control/fence.py",
        """f' && echo "$held $by" && exit {_NEWER}; '""",
        """f' && [ {_NEWER} ]; '""",
        "agent/test_lane.py::test_a_late_lease_is_kept_out",
    ),
    Guard(
        "what is changed is noted on the host first",
        "agent/control/journal.py",
        "        _write_synced(self._file, self.page)\n        for name",
        "        for name",
        "agent/test_leftovers.py::test_the_next_agent_puts_the_phone_back",
    ),
    Guard(
        "what is changed is noted on the phone too",
        "agent/control/journal.py",
        'self._phone.push("".join(lines).encode(), lane_file(name))',
        'assert "".join(lines)',
        "agent/test_leftovers.py::test_another_host_puts_back_what_the_phone_remembers",
    ),
    Guard(
        "a phone that is left alone puts itself back",
        "agent/control/guard.py",
        '"--silence-s", str(silence)]',
        '"--silence-s", str(99 * silence)]',
        "agent/test_leftovers.py::test_the_phone_puts_itself_back_after_silence",
    ),
    Guard(
        "a clock that was written is read back",
        "agent/control/clocks.py",
        "if not state.min_khz == state.max_khz == clocks[policy]",
        "if state.min_khz < 0",
        "agent/test_mischief_in_the_lane.py::test_a_clock_that_ignores_us",
    ),
    Guard(
        "a clock is held over the whole run",
        "agent/run/verdict.py",
        "elif seen.held_share < HELD_MIN:",
        "elif seen.held_share < 0:",
        "agent/test_mischief_in_the_lane.py::test_a_daemon_that_resets_the_clock",
    ),
    Guard(
        "a hot phone is waited for",
        "agent/control/cooldown.py",
        "    if now.temp_c > target:\n        return Wait(",
        "    if now.temp_c > 999:\n        return Wait(",
        "agent/test_cooldown_rule.py::test_a_hot_phone_waits_however_steady",
    ),
    Guard(
        "an overtaken lane puts nothing back",
        "agent/control/custody.py",
        "                    check_fence(self._phone, self._fence)\n",
        "                    pass\n",
        "agent/test_lane.py::test_a_lane_that_was_overtaken_does_not_put_the_phone_back",
    ),
    Guard(
        "an overtaken lane brings nothing in",
        "agent/run/telemetry.py",
        "cat = fenced(fence, [",
        "cat = Command([",
        "agent/test_agent_in_trouble.py::test_an_agent_that_was_frozen_finds_itself_overtaken[harvest]",
    ),
    Guard(
        "what was put back is read",
        "agent/control/journal.py",
        "    return refused + ignored\n",
        "    return refused\n",
        "agent/test_mischief_in_the_lane.py::test_what_does_not_go_back_is_told",
    ),
    Guard(
        "a lane shows life while it lives",
        "agent/control/custody.py",
        "                self._guard.feed()\n",
        "                pass\n",
        "agent/test_leftovers.py::test_a_lane_that_lives_is_not_put_back",
    ),
    Guard(
        "nothing is changed without a dead-man",
        "agent/control/guard.py",
        "if self._pid is None or answer.status != 0:",
        "if answer.status < 0:",
        "agent/test_mischief_in_the_lane.py::test_a_dead_man_that_is_killed",
    ),
    Guard(
        "a phone has a ceiling of heat",
        "agent/control/guard.py",
        "CPU_CEILING_C, SKIN_CEILING_C, BATTERY_CEILING_C = 102.0, 58.0, 52.0",
        "CPU_CEILING_C, SKIN_CEILING_C, BATTERY_CEILING_C = 902.0, 958.0, 952.0",
        "agent/test_health_check.py::test_a_phone_above_its_ceiling_is_saved_by_itself",
    ),
    Guard(
        "every thread is looked at",
        "agent/run/scene.py",
        "strays(placement, scene.cores.mask) if placement else {}",
        "{}",
        "agent/test_pinning.py::test_a_thread_that_is_moved_voids_the_run",
    ),
    Guard(
        "a GPU's clock is held over the whole run",
        "agent/run/verdict.py",
        "    _held_gpu,\n",
        "",
        "agent/test_every_rule.py::test_a_rule_finds_its_trouble_and_nobody_else_does[_held_gpu]",
    ),
    Guard(
        "a phone that throttles does not start",
        "agent/control/cooldown.py",
        "if now.temp_c <= target and looks[-1].capped:",
        "if now.temp_c > 999:",
        "agent/test_lane.py::test_a_thermal_cap_is_neither_overlooked_nor_put_back_as_a_setting",
    ),
    Guard(
        "a missing thermometer is no cool phone",
        "agent/control/cooldown.py",
        "    if missed >= MISSED_MAX:\n        return Fail(",
        "    if missed >= MISSED_MAX:\n        return Ready(20.0) or Fail(",
        "agent/test_mischief_in_the_lane.py::test_a_sensor_that_lies_while_we_wait[missing]",
    ),
    Guard(
        "a restart is noticed",
        "agent/run/runner.py",
        "        if self._boot_id not in {None, boot_id}:\n",
        "        if self._boot_id is None and boot_id is None:\n",
        "agent/test_lane.py::test_a_reboot_is_not_blamed_on_the_runner",
    ),
    Guard(
        "half an answer is no answer",
        "agent/phone/phone.py",
        "    if _CLOCK.search(text) is None:\n",
        "    if text is None:\n",
        "agent/test_door.py::test_half_an_answer_is_no_answer",
    ),
    Guard(
        "what a phone prints is bounded",
        "agent/phone/link.py",
        "if taken + len(pending) > limit + 64:",
        "if limit < 0:",
        "agent/test_door.py::test_a_file_over_its_limit_is_refused",
    ),
    Guard(
        "only kernel nodes are written",
        "agent/phone/phone.py",
        'return _WRITABLE.fullmatch(path) is not None and ".." not in path',
        "return bool(path)",
        "agent/test_leftovers.py::test_a_forged_list_on_the_phone_writes_nothing_else",
    ),
)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.promise)
def test_a_guard_is_where_it_is_looked_for(guard: Guard) -> None:
    assert 1 == (ROOT / guard.file).read_text().count(guard.with_it)
    file, _, name = guard.test.partition("::")
    assert f"def {name.partition('[')[0]}" in (ROOT / "tests" / file).read_text()


def test_every_fault_names_tests_that_are_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "tests" / "FAULTS.md").read_text())
    assert len(named) > 50
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.promise)
def test_without_a_guard_its_test_fails(guard: Guard, tmp_path: Path) -> None:
    house = tmp_path / "house"
    house.mkdir()
    for room in ROOMS:
        if (ROOT / room).is_dir():
            shutil.copytree(ROOT / room, house / room, symlinks=True)
        else:
            shutil.copy2(ROOT / room, house / room)
    weakened = house / guard.file
    weakened.write_text(weakened.read_text().replace(guard.with_it, guard.without))
    words = ["-q", "-x", "-m", "", "-p", "no:cacheprovider", f"tests/{guard.test}"]
    made = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=house,
        env={**os.environ, "PYTHONPATH": str(house)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert pytest.ExitCode.TESTS_FAILED == made.returncode, made.stdout + made.stderr
    assert "1 failed" in made.stdout
