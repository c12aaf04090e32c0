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
        "if tuple(attempt) in named:",
        "if named and named.setdefault(tuple(attempt), 2000.0):",
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
        "run.c.lease_until > latest)",
        "run.c.lease_until < 0)",
        "store/test_promises.py::"
        "test_a_clock_that_was_set_back_does_not_keep_a_lost_lease_alive[sqlite]",
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
        "agent/test_cooldown_rule.py::test_a_hot_phone_waits_as_long_as_the_fit_says",
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
    words = ["-q", "-x", "-p", "no:cacheprovider", f"tests/{guard.test}"]
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
