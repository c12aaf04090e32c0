"""`farm doctor`: checks everything that a lab needs."""

from dataclasses import asdict
from pathlib import Path

import click

from orchestrator.commands.common import json_option, lab_option, print_json, read_lab
from orchestrator.commands.exit_codes import FAILURES
from workloads.command_output import say, show_wait
from workloads.text import safe_text


@click.command()
@lab_option
@json_option
def doctor(lab_folder: Path, as_json: bool) -> int:
    """Check adb, USB, hubs, broker, store, disk and clocks; print remedies.

    Exits with 5 on any error, e.g. a broker without authentication.

    Example: farm doctor
    """
    from orchestrator.app.checks.check_finding import ERROR, OK
    from orchestrator.app.checks.lab_checks import check_lab

    with show_wait("adb, the store and the broker to be checked"):
        findings = list(check_lab(read_lab(lab_folder)))
    errors = [finding for finding in findings if finding.level == ERROR]
    if as_json:
        print_json([asdict(finding) for finding in findings])
        return FAILURES if errors else 0
    marks = {OK: "ok     ", ERROR: "ERROR  "}
    for finding in findings:
        mark = marks.get(finding.level, "warning")
        say(safe_text(f"{mark} {finding.subject}: {finding.text}", 400))
        if finding.fix:
            say(f"        remedy: {safe_text(finding.fix, 400)}")
    return FAILURES if errors else 0
