"""Data files: brought by somebody, kept on the host by digest, pushed to a phone once."""

from hashlib import sha256
from pathlib import Path

from agent.phone.phone import HOME, Phone
from workloads.fault import Refused

FILE_BYTES_MAX = 512 * 1024 * 1024


def install_data(phone: Phone, digest: str, shelf: Path) -> str:
    """Have this very data file on the phone and answer its path; pushed only if it is not there."""
    path = f"{HOME}/data-{digest[:16]}"
    there = phone.shell(["sha256sum", path])
    if there.status == 0 and there.text.split(" ")[0] == digest:
        return path
    phone.push(_on_host(digest, shelf), path)
    return path


def _on_host(digest: str, shelf: Path) -> bytes:
    file = shelf / digest
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise Refused(f"The data file {digest[:12]}... is larger than 512 MB; make it smaller.")
        content = file.read_bytes()
    except OSError:
        raise Refused(
            f"The data file {digest[:12]}... is not on this host; bring it with "
            "'farm workload data', into the lab folder that this agent uses."
        ) from None
    if sha256(content).hexdigest() != digest:
        raise Refused(f"{digest[:12]}... in {shelf.name} is not the file of that digest.")
    return content
