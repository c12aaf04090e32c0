"""Disables each safeguard once in a copy of the tree, and requires that its test fails.

A suite that passes without a safeguard does not test it. In the product a comment `# guard: NAME`
marks the line of a safeguard; the table says how that line is weakened and which test fails then.
By default only the existence of markers and tests is checked, because the copies are slow.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("agent", "kernels", "orchestrator", "workloads")
COPIED = (*PRODUCT, "tests", "examples", "pyproject.toml")
MARKER = re.compile(r"^( *)(\S.*?)  # guard: ([a-z0-9-]+)$", re.MULTILINE)
CONDITION = re.compile(r"\b((?:el)?if) .*?(:?)$")

DROP = "drop"  # the statement becomes `pass`
NEVER, ALWAYS = "never", "always"  # the condition of an `if` or `elif` becomes False or True


class Guard(NamedTuple):
    """How a marked line is weakened, and the test that then fails."""

    name: str
    change: str | tuple[str, str]  # DROP, NEVER, ALWAYS, or (code in the line, what replaces it)
    test: str


class Marker(NamedTuple):
    """A marked line."""

    file: str
    indent: str
    code: str

    def weakened(self, change: str | tuple[str, str]) -> str:
        """Return the line without its safeguard."""
        if isinstance(change, tuple):
            return self.indent + self.code.replace(*change)
        if change == DROP:
            return f"{self.indent}pass"
        return self.indent + CONDITION.sub(rf"\1 {change == ALWAYS}\2", self.code)


GUARDS = (
    Guard(
        "adbd-kills-children",
        NEVER,
        "agent/test_mischief_in_the_lane.py::test_a_phone_that_kills_the_children_of_adbd",
    ),
    Guard(
        "listed-nodes",
        ("node.may_write and ", ""),
        "virtual/test_native_nodes.py::test_other_nodes_cannot_be_written",
    ),
    Guard(
        "only-old-values",
        ("self._is_original(self._copies[path], value)", "True"),
        "virtual/test_native_nodes.py::test_a_program_on_the_phone_cannot_set_clocks",
    ),
    Guard(
        "restorer-first",
        DROP,
        "virtual/test_native_nodes.py"
        "::test_clocks_are_restored_when_the_phones_process_is_killed[False]",
    ),
    Guard(
        "one-lease-per-phone",
        ("True", "False"),
        "store/test_leases.py::test_the_database_itself_refuses_two_leases_on_a_phone[sqlite]",
    ),
    Guard(
        "one-accepted-report-per-run",
        ("True", "False"),
        "store/test_ingest.py::test_the_database_itself_refuses_two_accepted_reports[sqlite]",
    ),
    Guard(
        "older-attempt",
        ("row.attempt", "report.run.attempt"),
        "store/test_ingest.py::test_a_report_of_an_older_attempt_is_stored_as_stale[sqlite]",
    ),
    Guard(
        "host-reports-for-itself",
        NEVER,
        "store/test_ingest.py::test_a_host_cannot_report_for_another[sqlite]",
    ),
    Guard(
        "alive-run-keeps-its-lease",
        NEVER,
        "store/test_leases.py::test_an_attempt_that_is_alive_keeps_its_lease[sqlite]",
    ),
    Guard(
        "report-under-way",
        DROP,
        "dispatch/test_lease_trouble.py::test_a_finished_run_is_not_thrown_away_after_a_cut",
    ),
    Guard(
        "doubled-report",
        NEVER,
        "store/test_ingest.py::test_a_report_that_arrives_three_times_is_stored_once[sqlite]",
    ),
    Guard(
        "own-attempt",
        (
            "named.get((item.trial, item.repeat, item.attempt), 0.0)",
            "max(named.values(), default=0.0)",
        ),
        "store/test_leases.py::test_a_heartbeat_renews_only_its_own_attempt[sqlite]",
    ),
    Guard(
        "paused-before-lease",
        ALWAYS,
        "store/test_operator_actions.py::test_a_sweep_paused_between_choice_and_lease_is_not_started[sqlite]",
    ),
    Guard(
        "clock-set-back",
        (", latest)", ", 1e300)"),
        "store/test_leases.py::"
        "test_a_clock_that_was_set_back_does_not_keep_a_lost_lease_alive[sqlite]",
    ),
    Guard(
        "job-never-arrived",
        ALWAYS,
        "store/test_poison.py::test_a_job_that_never_reached_its_host_is_not_a_crash[sqlite]",
    ),
    Guard(
        "poison",
        ("2", "99"),
        "store/test_poison.py::"
        "test_a_case_that_kills_attempts_on_two_phones_is_blocked_with_the_evidence[sqlite]",
    ),
    Guard(
        "contested-phone",
        DROP,
        "dispatch/test_heartbeats.py::test_a_contested_phone_is_not_used",
    ),
    Guard(
        "moved-phone-keeps-its-sources",
        NEVER,
        "store/test_ingest.py::test_a_phone_with_other_sources_is_never_a_moved_phone",
    ),
    Guard(
        "revoked-host",
        NEVER,
        "dispatch/test_broker_memory.py::test_what_a_host_outside_of_the_lab_sends_is_not_stored",
    ),
    Guard(
        "late-report-of-a-stranger",
        NEVER,
        "store/test_ingest.py::test_a_late_report_of_a_stranger_is_not_kept",
    ),
    Guard(
        "host-clock-skew",
        NEVER,
        "dispatch/test_heartbeats.py::test_the_clock_skew_of_a_host_is_found",
    ),
    Guard("job-starts-once", ("bool(count)", "True"), "host/test_spool.py::test_a_run_starts_once"),
    Guard(
        "interrupted-job",
        ("ended = 0", "ended = 9"),
        "host/test_spool.py::test_runs_that_started_before_a_kill_are_known_after_it",
    ),
    Guard(
        "resend-report",
        ("now + pause_s", "now + 3600"),
        "host/test_outbox.py::test_a_parcel_is_sent_until_it_is_confirmed",
    ),
    Guard(
        "late-lane",
        ('echo "$held $by" && exit {_NEWER}', "[ {_NEWER} ]"),
        "agent/test_lane.py::test_an_older_lease_is_refused",
    ),
    Guard(
        "journal-on-host",
        DROP,
        "agent/test_leftovers.py::test_the_next_agent_restores_the_phone",
    ),
    Guard(
        "journal-on-phone",
        DROP,
        "agent/test_leftovers.py::test_another_host_restores_from_the_journal_on_the_phone",
    ),
    Guard(
        "watchdog-timeout",
        ("str(timeout_s)", "str(99 * timeout_s)"),
        "agent/test_leftovers.py::test_the_phone_restores_itself_without_heartbeats",
    ),
    Guard(
        "clock-read-back",
        NEVER,
        "agent/test_mischief_in_the_lane.py::test_a_clock_that_ignores_writes",
    ),
    Guard(
        "pinned-clock-share",
        NEVER,
        "agent/test_mischief_in_the_lane.py::test_a_daemon_that_resets_the_clock",
    ),
    Guard(
        "hot-phone-waits",
        NEVER,
        "agent/test_cooldown_rule.py::test_a_hot_phone_waits_even_if_it_is_steady",
    ),
    Guard(
        "overtaken-lane-restores-nothing",
        DROP,
        "agent/test_lane.py::test_a_superseded_lane_restores_nothing",
    ),
    Guard(
        "overtaken-lane-collects-nothing",
        ("fenced_command(fence, ", "ShellCommand("),
        "agent/test_agent_in_trouble.py::test_a_frozen_agent_is_superseded[collect]",
    ),
    Guard(
        "restored-value-read-back",
        ("refused + ignored", "refused"),
        "agent/test_mischief_in_the_lane.py::test_a_restore_error_is_reported",
    ),
    Guard(
        "lane-sends-heartbeat",
        DROP,
        "agent/test_leftovers.py::test_a_running_lane_is_not_restored",
    ),
    Guard(
        "no-change-without-watchdog",
        NEVER,
        "agent/test_mischief_in_the_lane.py::test_a_watchdog_that_is_killed",
    ),
    Guard(
        "temp-limits",
        ("102.0, 58.0, 52.0", "902.0, 958.0, 952.0"),
        "agent/test_selftest.py::test_a_phone_above_its_temperature_limit_stops_its_run",
    ),
    Guard(
        "strays",
        ("stray_threads(", "{} and stray_threads("),
        "agent/test_pinning.py::test_a_thread_that_is_moved_voids_the_run",
    ),
    Guard(
        "gpu-clock-held",
        ("check_gpu_clock,", ""),
        "agent/test_every_rule.py::test_a_rule_finds_its_fault_and_no_other_rule_does[check_gpu_clock]",
    ),
    Guard(
        "throttled-phone-waits",
        NEVER,
        "agent/test_lane.py::test_a_thermal_cap_is_noticed_and_not_restored_as_a_setting",
    ),
    Guard(
        "missing-sensor",
        ("GiveUp(", "CoolEnough(20.0) or GiveUp("),
        "agent/test_mischief_in_the_lane.py::test_a_wrong_sensor_during_the_cooldown[missing]",
    ),
    Guard(
        "restart-noticed",
        NEVER,
        "agent/test_lane.py::test_a_reboot_is_not_blamed_on_the_runner",
    ),
    Guard(
        "truncated-output",
        NEVER,
        "agent/test_phone_link.py::test_truncated_output_is_an_error",
    ),
    Guard(
        "output-limit",
        NEVER,
        "agent/test_phone_link.py::test_a_file_over_its_limit_is_refused",
    ),
    Guard(
        "kernel-nodes-only",
        ("_WRITABLE.fullmatch(path) is not None and", "path or"),
        "agent/test_leftovers.py::test_a_forged_list_on_the_phone_writes_only_kernel_nodes",
    ),
)


@functools.cache
def markers() -> dict[str, Marker]:
    """Return every marked line of the product, by the name of its guard."""
    lines: dict[str, Marker] = {}
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            for indent, code, name in MARKER.findall(path.read_text()):
                assert name not in lines, f"{file}: '# guard: {name}' occurs twice"
                lines[name] = Marker(file, indent, code)
    return lines


def test_every_marked_line_has_its_guard_in_the_table() -> None:
    assert markers().keys() == {guard.name for guard in GUARDS}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_has_a_line_to_weaken_and_a_test(guard: Guard) -> None:
    marker = markers()[guard.name]
    assert marker.weakened(guard.change).strip() != marker.code
    file, _, name = guard.test.partition("::")
    assert f"def {name.partition('[')[0]}" in (ROOT / "tests" / file).read_text()


def test_every_fault_names_existing_tests() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "tests" / "FAULTS.md").read_text())
    assert len(named) > 50
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_a_guard_its_test_fails(guard: Guard, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True)
        else:
            shutil.copy2(ROOT / name, tree / name)
    marker = markers()[guard.name]
    weakened = tree / marker.file
    line = f"{marker.indent}{marker.code}  # guard: {guard.name}"
    weakened.write_text(weakened.read_text().replace(line, marker.weakened(guard.change)))
    options = ["-q", "-x", "-m", "", "-p", "no:cacheprovider", f"tests/{guard.test}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "1 failed" in run.stdout
