"""The checks of `farm doctor`: one function per question, each finding with its remedy."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from orchestrator.app.checks.check_finding import ERROR, OK, WARNING, CheckFinding
from orchestrator.app.checks.security_checks import (
    check_certificates,
    check_secrets,
    judge_broker,
    judge_store,
    public_ports,
)
from orchestrator.app.checks.usb_checks import adb_server_version, judge_usb, read_host_usb
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.app.screen.lab_problems import phone_problems
from orchestrator.dispatch.central_broker import CentralBroker, HostReading
from orchestrator.dispatch.host_notices import NO_RUNS, host_notices
from orchestrator.dispatch.ownership import own_readings
from orchestrator.planning.states import Health
from orchestrator.store.enrolments import host_accesses, lab_hosts
from orchestrator.store.phone_queries import (
    KnownPhone,
    known_phones,
    owned_phones,
    previous_hosts,
)
from workloads.lab.connection_url import without_password
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmError
from workloads.protocol.messages import PhoneState
from workloads.units import format_bytes

DISK_ERROR_B, DISK_WARNING_B = 200 * 10**6, 2 * 10**9
SKEW_WARNING_S = 2.0
HEALTHY = ("", "good", "unknown")
CAPACITY_SHARE_MIN = 0.8  # below it, makers call a battery worn out
WATCHED_MIN_H = 100


def check_python() -> Iterator[CheckFinding]:
    """Whether this Python is new enough."""
    version = ".".join(map(str, sys.version_info[:3]))
    new = sys.version_info >= (3, 11)
    yield CheckFinding(
        "python", OK if new else ERROR, version, "" if new else "install Python 3.11"
    )


def check_disk(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the disk has room for reports."""
    folder = next(path for path in (lab.root, *lab.root.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    level = ERROR if free < DISK_ERROR_B else WARNING if free < DISK_WARNING_B else OK
    fix = "" if level == OK else f"free disk space at {folder}"
    yield CheckFinding("disk", level, f"{format_bytes(free)} free at {folder}", fix)


def check_adb(lab: Lab) -> Iterator[CheckFinding]:
    """Whether adb is installed, and whether its server is reachable from other computers."""
    program = shutil.which("adb") or _bundled_adb()
    if program is None:
        yield CheckFinding(
            "adb", ERROR, "adb is not installed", "install adb (Debian: apt install adb)"
        )
    else:
        done = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
        version = (done.stdout.splitlines() or ["'adb version' prints nothing"])[0]
        yield CheckFinding("adb", OK if done.returncode == 0 else ERROR, f"{version} ({program})")
        yield from judge_versions(version, adb_server_version(lab.settings.agent.adb_port))
    port = lab.settings.agent.adb_port
    if port in public_ports():
        text = (
            f"the adb server on port {port} accepts other computers, which can control the phones"
        )
        yield CheckFinding("adb server", ERROR, text, "restart it without -a: adb kill-server")


def judge_versions(client: str, server: int | None) -> Iterator[CheckFinding]:
    """Find an adb that ends the running server, because their versions differ."""
    found = re.search(r"version 1\.0\.(\d+)", client)
    if found is not None and server is not None and int(found[1]) != server:
        text = f"adb 1.0.{found[1]} and the running server 1.0.{server} stop each other"
        yield CheckFinding("adb server", ERROR, text, "use one adb version, then: adb kill-server")


def _bundled_adb() -> str | None:
    spec = find_spec("adbutils")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in Path(folder).glob("binaries/adb*"):
            if os.access(found, os.X_OK):
                return str(found)
    return None


def check_usb(lab: Lab) -> Iterator[CheckFinding]:
    """What keeps phones on USB, adb servers and hubs of this computer from working."""
    known = {_read_word(file) for file in (lab.root / "agents").glob("*/usb/*")} - {""}
    yield from judge_usb(read_host_usb(lab.settings.agent.adb_port, known))


def _read_word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def check_broker(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the broker answers, and who may use it."""
    try:
        url = lab.broker_url
    except FarmError as error:
        yield CheckFinding("broker", ERROR, str(error), "correct lab.toml")
        return
    shown, broker = without_password(url), CentralBroker(url)
    try:
        broker.check()
        is_open = broker.allows_anonymous_access()
    except FarmError as error:
        fix = (
            f"start the lab: farm up --lab {lab.root}"
            if lab.has_embedded_broker
            else "start the broker"
        )
        yield CheckFinding("broker", ERROR, str(error), fix)
        return
    finally:
        broker.close()
    yield CheckFinding("broker", OK, f"answers at {shown}")
    yield from judge_broker(url, is_open, public_ports())


def check_store(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the store answers and has the right tables."""
    try:
        with LabConnection(lab) as connection:
            connection.store.check_integrity()
    except FarmError as error:
        yield CheckFinding("store", ERROR, str(error), f"start the lab: farm up --lab {lab.root}")
        return
    yield CheckFinding("store", OK, f"answers at {without_password(lab.store_url)}")
    yield from judge_store(lab.store_url)


def check_batteries(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the batteries of the phones are worn, or kept full."""
    try:
        with LabConnection(lab) as connection:
            phones = known_phones(connection.store)
    except FarmError:
        return  # check_store reports it
    yield from judge_batteries(phones)


def judge_batteries(phones: Iterable[KnownPhone]) -> Iterator[CheckFinding]:
    """Yield what is wrong with the batteries of phones that are in use, and a refused root."""
    for phone in phones:
        battery, manager = phone.facts.battery, phone.facts.root_manager
        if manager and phone.health is not Health.RETIRED:
            fix = (
                f"to use root, allow it for the shell in {manager}; see docs/howto/rooted-phones.md"
            )
            text = f"{phone.facts.model}: {manager} refused root to the shell"
            yield CheckFinding(f"root {phone.serial}", WARNING, text, fix)
        if battery is None or phone.health is Health.RETIRED:
            continue
        worn = [
            f"its health is '{battery.health}'" * (battery.health not in HEALTHY),
            f"it holds {battery.capacity_share:.0%} of its capacity"
            if (battery.capacity_share or 1.0) < CAPACITY_SHARE_MIN
            else "",
        ]
        texts = [text for text in worn if text]
        fix = f"replace the battery, or: farm phone retire {phone.serial} --why ..."
        if battery.hours >= WATCHED_MIN_H and battery.hours_above_90 > battery.hours / 2:
            texts.append(f"it was above 90 % for {battery.hours_above_90} of {battery.hours} h")
            if not any(worn):
                fix = "limit charging to 80 % in the phone's settings, or switch its port by timer"
        if texts:
            subject = f"battery {phone.serial}"
            yield CheckFinding(subject, WARNING, f"{phone.facts.model}: {', '.join(texts)}", fix)


def _read_hosts(lab: Lab) -> tuple[frozenset[str] | None, list[HostReading]]:
    """Return the hosts of the lab, and what they send about their own phones."""
    named = lab.settings.scheduler.hosts
    with CentralBroker(lab.broker_url) as broker:
        try:
            with LabConnection(lab) as connection:
                hosts = lab_hosts(host_accesses(connection.store), named)
                owned = owned_phones(connection.store)
                owners = {serial: item.host for serial, item in owned.items()}
                previous = partial(previous_hosts, connection.store)
                return hosts, own_readings(broker.host_readings(hosts), owners, previous)
        except FarmError:  # check_store reports it
            hosts = lab_hosts([], named)
            return hosts, broker.host_readings(hosts)


def check_services(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the services run, and what is wrong with hosts, e.g. their clock or version."""
    try:
        with CentralBroker(lab.broker_url) as broker:
            scheduler, ingests = broker.scheduler(), broker.ingest_services()
        hosts, readings = _read_hosts(lab)
    except FarmError:
        return  # check_broker reports it
    up = f"farm up --lab {lab.root}"
    if scheduler is None:
        yield CheckFinding("scheduler", ERROR, "not running", up)
    else:
        yield CheckFinding("scheduler", OK, "running")
    if ingests:
        yield CheckFinding("ingest", OK, "running")
    else:
        yield CheckFinding("ingest", ERROR, "not running, so no report is stored", up)
    for notice in host_notices(readings, ingests, hosts):
        severity = ERROR if notice.problem in NO_RUNS else WARNING
        yield CheckFinding(f"host {notice.host}", severity, notice.text)
    now = datetime.now(UTC)
    if not readings:
        yield CheckFinding("hosts", WARNING, "no agent is running", "farm service agent")
    for heartbeat in (item.heartbeat for item in readings if item.heartbeat is not None):
        offset_s = (heartbeat.sent_at - now).total_seconds()
        far = abs(offset_s) > lab.settings.scheduler.lease_timeout_s / 2
        level = ERROR if far else WARNING if abs(offset_s) > SKEW_WARNING_S else OK
        connected = sum(phone.state is not PhoneState.AWAY for phone in heartbeat.phones)
        text = f"{connected} phones, clock {offset_s:+.1f} s"
        fix = "" if level == OK else "synchronise its clock with NTP; jobs expire by its clock"
        yield CheckFinding(f"host {heartbeat.host}", level, text, fix)


def check_phones(lab: Lab) -> Iterator[CheckFinding]:
    """Whether all phones and hosts of the lab get runs."""
    try:
        with LabConnection(lab) as connection:
            view = read_lab_status(connection, with_progress=False)
    except FarmError:
        return  # check_broker or check_store reports it
    for item in phone_problems(view):
        yield CheckFinding(item.subject, WARNING, item.text, item.fix)


def check_lab(lab: Lab) -> Iterator[CheckFinding]:
    """Run all checks, from this computer to the services."""
    yield from check_python()
    yield from check_disk(lab)
    yield from check_secrets(lab)
    yield from check_certificates(lab)
    yield from check_adb(lab)
    yield from check_usb(lab)
    yield from check_broker(lab)
    yield from check_store(lab)
    yield from check_batteries(lab)
    yield from check_services(lab)
    yield from check_phones(lab)
