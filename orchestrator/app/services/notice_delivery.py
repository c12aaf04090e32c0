"""Delivers a notice: by a webhook that is signed, or by a command.

A receiver recognises a repeated notice by its id, and a forged or an old one by its signature,
which covers the time and the body.
"""

import hashlib
import hmac
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path

from orchestrator.store.notices import StoredNotice
from workloads.lab.connection_url import read_secret
from workloads.lab.process_identity import software_version
from workloads.lab.service_settings import NoticeSettings
from workloads.protocol.faults import FarmError
from workloads.text import safe_text

WEBHOOK_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 30.0
# Nothing of the service's own environment, which may name files with passwords.
COMMAND_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def notice_body(notice: StoredNotice, lab: str) -> bytes:
    """Return a notice as its receiver gets it."""
    content = {
        "id": notice.id,
        "lab": lab,
        "kind": notice.kind,
        "subject": notice.subject,
        "text": safe_text(notice.text, 1000),
        "raised_at": datetime.fromtimestamp(notice.raised_at_s, UTC).isoformat(),
    }
    return json.dumps(content).encode()


def signature(secret: str, moment: int, body: bytes) -> str:
    """Return the value of the header Farm-Signature."""
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def deliver(notice: StoredNotice, settings: NoticeSettings, folder: Path) -> str:
    """Deliver a notice of the lab in a folder; return why it failed, or an empty text."""
    body = notice_body(notice, folder.name)
    try:
        if settings.webhook:
            return _post(settings, notice.id, body, folder)
        return _run(settings.command, body)
    except FarmError as error:  # the secret cannot be read
        return str(error)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead the signed notice to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(settings: NoticeSettings, number: int, body: bytes, folder: Path) -> str:
    moment = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"farmhand/{software_version()}",
        "Farm-Notice": str(number),
        "Farm-Timestamp": str(moment),
        "Farm-Signature": signature(read_secret(folder / settings.secret_file), moment, body),
    }
    request = urllib.request.Request(settings.webhook, body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=WEBHOOK_TIMEOUT_S) as response:
            response.read(1024)
    except urllib.error.HTTPError as error:
        return f"the webhook answered {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"the webhook cannot be reached: {safe_text(reason, 200)}"
    return ""


def _run(command: tuple[str, ...], body: bytes) -> str:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=COMMAND_ENVIRONMENT,
        )
    except (OSError, ValueError) as error:
        return f"the command cannot be run: {error}"
    try:
        _, errors = process.communicate(body, COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"the command did not end within {COMMAND_TIMEOUT_S:.0f} s"
    last = safe_text(errors[-500:].decode(errors="replace"), 200)
    return f"the command failed with code {process.returncode}: {last}" * bool(process.returncode)
