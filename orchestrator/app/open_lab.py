"""Connects a user to a lab: one of this computer, or another one through its API."""

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.app.lab_connection import LabConnection
from workloads.lab.settings import Lab, LabSettings
from workloads.protocol.faults import BadFile


def open_lab(
    folder: Path, variables: Mapping[str, str], url: str = "", token: str = "", ca_file: str = ""
) -> LabConnection:
    """Connect the current user to a lab; store and broker are opened on first use.

    With a URL, here or in the variable FARM_API, operations are called through the API of the lab,
    with the token given here, in FARM_TOKEN or in the file that FARM_TOKEN_FILE names.
    """
    url = url or variables.get("FARM_API", "")
    if not url:
        return LabConnection(Lab.read(folder, dict(variables)), current_user())
    from orchestrator.app.remote.api_client import RemoteLab

    ca_file = ca_file or variables.get("FARM_API_CA", "")
    remote = RemoteLab(url, token or _token(variables), ca_file)
    return LabConnection(Lab(folder.absolute(), LabSettings()), current_user(), remote)


def current_user() -> str:
    """The name of the user who runs the program, for the audit log; never a variable's value."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no name
        return f"user {os.getuid()}"


def _token(variables: Mapping[str, str]) -> str:
    """Return the token in FARM_TOKEN, or in the file that FARM_TOKEN_FILE names."""
    file = variables.get("FARM_TOKEN_FILE")
    if not file or variables.get("FARM_TOKEN"):
        return variables.get("FARM_TOKEN", "").strip()
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"FARM_TOKEN_FILE {file} cannot be read: {error}") from error
