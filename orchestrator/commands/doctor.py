"""`farm doctor`: everything a lab needs, looked over at once."""

from dataclasses import asdict
from pathlib import Path

import click

from orchestrator.commands.common import json_option, lab_option, print_json, read_lab
from orchestrator.commands.exit_codes import FAILURES
from workloads.text import safe_text


@click.command()
@lab_option
@json_option
def doctor(lab_folder: Path, as_json: bool) -> int:
    """Look over adb, USB rights, broker, store, disk, clocks; say what helps.

    Ends with 5 if anything is an error. A broker that takes anybody without a password is one.
    """
    from orchestrator.commands.doctor_checks import ERROR, OK, all_findings

    found = list(all_findings(read_lab(lab_folder)))
    errors = [finding for finding in found if finding.level == ERROR]
    if as_json:
        print_json([asdict(finding) for finding in found])
        return FAILURES if errors else 0
    marks = {OK: "ok     ", ERROR: "ERROR  "}
    for finding in found:
        mark = marks.get(finding.level, "warning")
        click.echo(safe_text(f"{mark} {finding.what}: {finding.text}", 400))
        if finding.fix:
            click.echo(safe_text(f"        what helps: {finding.fix}", 400))
    return FAILURES if errors else 0
