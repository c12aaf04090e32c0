"""Lists, shows and controls phones; sends commands to the hosts of phones."""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial

from orchestrator.app.app_errors import InvalidState, NoPhoneMatches, TimedOut
from orchestrator.app.control_sweeps import publish_change
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabPoller, ReportedProblem
from orchestrator.app.operation import Role, operation
from orchestrator.store import phone_actions, phone_health
from orchestrator.store.database import Database
from orchestrator.store.operator_change import Actor, OperatorChange
from orchestrator.store.phone_health import CommandOutcome
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.store.results import telemetry_blob
from orchestrator.sweepfile.policy import TAG_PATTERN
from orchestrator.sweepfile.selector import parse_selector
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import HOST_PATTERN, Command, CommandKind, PhoneState
from workloads.protocol.phone_address import parse_phone_address
from workloads.text import safe_text

HOURS_MAX = 24 * 365  # of a reservation
RESULT_POLL_S = 0.1
CHECK_TIMEOUT_S = 90.0
TUNING_TIMEOUT_S = 300.0
CONNECT_TIMEOUT_S = 120.0
TUNING_SIZES_MAX, TUNING_SIZE_MAX = 16, 4096

PhoneAction = Callable[[Database, str, Actor], OperatorChange]


@operation(Role.VIEWER)
def list_phones(lab: LabConnection, selector: str = "") -> list[KnownPhone]:
    """List all known phones with their current state, or those that match a selector."""
    wanted = parse_selector(selector) if selector else None
    phones = LabPoller(lab).read_phones()
    if wanted is None:
        return list(phones)
    matching = [phone for phone in phones if wanted.matches(phone.facts, phone.tags)]
    if not matching:
        raise NoPhoneMatches(
            f"no phone matches '{safe_text(selector)}'; 'farm phone list' shows all"
        )
    return matching


@operation(Role.VIEWER)
def list_unusable_phones(lab: LabConnection) -> tuple[ReportedProblem, ...]:
    """List the phones that hosts see and cannot use, with what to do."""
    return LabPoller(lab).read_problems()


@operation(Role.VIEWER)
def find_phone(lab: LabConnection, serial: str) -> KnownPhone:
    """Find a phone by its serial number or by a unique prefix of it."""
    return match_serial(LabPoller(lab).read_phones(), serial)


def match_serial(phones: Sequence[KnownPhone], serial: str) -> KnownPhone:
    """Return the one phone whose serial number is given or begins with what is given."""
    prefixed = [phone for phone in phones if phone.serial.startswith(serial)]
    exact = [phone for phone in prefixed if phone.serial == serial]
    if len(exact or prefixed) == 1:
        return (exact or prefixed)[0]
    if prefixed:
        raise InvalidRequest(f"'{serial}' is ambiguous ({len(prefixed)} phones match)")
    raise InvalidRequest(f"there is no phone '{safe_text(serial)}'; 'farm phone list' shows all")


@operation(Role.OPERATOR)
def tag_phone(
    lab: LabConnection,
    serial: str,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    dry_run: bool = False,
) -> OperatorChange:
    """Add tags to a phone or remove them."""
    for name in (*add, *remove):
        if re.fullmatch(TAG_PATTERN, name) is None:
            raise InvalidRequest(
                f"'{safe_text(name)}' is not a valid tag; use a-z, 0-9, '.', '_' and '-'"
            )
    return _change(lab, serial, dry_run, partial(phone_actions.tag, add=add, remove=remove))


@operation(Role.OPERATOR)
def reserve_phone(
    lab: LabConnection,
    serial: str,
    person: str = "",
    hours: float = 0.0,
    reason: str = "",
    dry_run: bool = False,
) -> OperatorChange:
    """Reserve a phone for a person (default: the user), for some hours or until unreserved."""
    if not 0 <= hours <= HOURS_MAX:
        raise InvalidRequest(f"a phone is reserved for at most {HOURS_MAX} hours, not {hours:g}")
    until = time.time() + hours * 3600 if hours else 0.0
    action = partial(phone_actions.reserve, person=person, until=until, reason=reason)
    return _change(lab, serial, dry_run, action)


@operation(Role.OPERATOR)
def unreserve_phone(lab: LabConnection, serial: str, dry_run: bool = False) -> OperatorChange:
    """End the reservation of a phone."""
    return _change(lab, serial, dry_run, phone_actions.unreserve)


@operation(Role.OPERATOR)
def move_phone(lab: LabConnection, serial: str, host: str, dry_run: bool = False) -> OperatorChange:
    """Say which host has a phone, if two show it or its cable was moved from a host that is off."""
    if not re.fullmatch(HOST_PATTERN, host):
        raise InvalidRequest(f"'{safe_text(host)}' cannot be the name of a host")
    return _change(lab, serial, dry_run, partial(phone_actions.move, to=host))


@operation(Role.OPERATOR)
def quarantine_phone(
    lab: LabConnection, serial: str, reason: str, dry_run: bool = False
) -> OperatorChange:
    """Give a phone no more runs until it is released."""
    return _change(lab, serial, dry_run, partial(phone_actions.quarantine, reason=reason))


@operation(Role.OPERATOR)
def retire_phone(
    lab: LabConnection, serial: str, reason: str, dry_run: bool = False
) -> OperatorChange:
    """Take a phone out of the lab permanently; its results are kept."""
    return _change(lab, serial, dry_run, partial(phone_actions.retire, reason=reason))


@operation(Role.OPERATOR)
def release_phone(lab: LabConnection, serial: str, dry_run: bool = False) -> OperatorChange:
    """Return a held, quarantined or retired phone to service."""
    return _change(lab, serial, dry_run, phone_actions.release)


@operation(Role.OPERATOR)
def check_phone(lab: LabConnection, serial: str) -> CommandOutcome:
    """Have the host of a phone check it."""
    return _send_command(lab, serial, CommandKind.CHECK)


@operation(Role.OPERATOR)
def commission_phone(lab: LabConnection, serial: str, quick: bool = False) -> str:
    """Have the host of a phone commission it; return the id of the command, which takes long."""
    phone = _present_phone(lab, serial)
    command = secrets.token_hex(8)
    request = Command(kind=CommandKind.COMMISSION, phone=phone.serial, id=command, quick=quick)
    publish_change(lab, phone_actions.commission(lab.store, phone.serial, lab.actor(), command))
    lab.job_queue.send_command(phone.host, request)
    return command


@operation(Role.VIEWER)
def find_command_outcome(lab: LabConnection, command: str) -> CommandOutcome | None:
    """Find the result of a command to a host by its id; None while there is none."""
    return phone_health.find_command_result(lab.store, command)


@operation(Role.OPERATOR)
def connect_phone(lab: LabConnection, address: str, host: str = "") -> CommandOutcome:
    """Have a host connect a phone over the network, now and after every start of its agent."""
    return _ask_about_address(lab, CommandKind.CONNECT, address, host)


@operation(Role.OPERATOR)
def disconnect_phone(lab: LabConnection, address: str, host: str = "") -> CommandOutcome:
    """Have a host disconnect a phone that was connected over the network."""
    return _ask_about_address(lab, CommandKind.DISCONNECT, address, host)


@operation(Role.OPERATOR)
def pair_phone(lab: LabConnection, address: str, code: str, host: str = "") -> CommandOutcome:
    """Have a host pair with a phone by the code on its screen (Android 11), and connect it."""
    if re.fullmatch("[0-9]{6}", code) is None:
        raise InvalidRequest("the code has six digits; the phone shows it with its pairing address")
    if ":" not in address:
        raise InvalidRequest("pairing has its own port; write HOST:PORT as the phone shows it")
    return _ask_about_address(lab, CommandKind.PAIR, address, host, code)


@operation(Role.OPERATOR)
def restore_phone(lab: LabConnection, serial: str) -> CommandOutcome:
    """Have the host of a phone restore the settings that an interrupted run left changed."""
    return _send_command(lab, serial, CommandKind.RESTORE)


@operation(Role.OPERATOR)
def tune_phone(lab: LabConnection, serial: str, sizes: Sequence[int]) -> CommandOutcome:
    """Have the host of a phone tune its OpenCL kernels; the result names the tuning file."""
    possible = all(0 < size <= TUNING_SIZE_MAX for size in sizes)
    if not possible or not 0 < len(sizes) <= TUNING_SIZES_MAX:
        raise InvalidRequest(
            f"a phone is tuned for at most {TUNING_SIZES_MAX} sizes from 1 to {TUNING_SIZE_MAX}"
        )
    return _send_command(lab, serial, CommandKind.TUNE, tuple(sizes), TUNING_TIMEOUT_S)


@operation(Role.VIEWER)
def read_tuning_file(lab: LabConnection, digest: str) -> bytes:
    """Return the tuning file that a tuning command has stored."""
    content = telemetry_blob(lab.store, digest)
    if content is None:
        raise InvalidRequest(f"the tuning file {digest[:16]} is incomplete; tune the phone again")
    return content


def _change(lab: LabConnection, serial: str, dry_run: bool, action: PhoneAction) -> OperatorChange:
    phone = find_phone(lab, serial)
    return publish_change(lab, action(lab.store, phone.serial, lab.actor(dry_run)))


def _present_phone(lab: LabConnection, serial: str) -> KnownPhone:
    phone = find_phone(lab, serial)
    if phone.status.state not in {PhoneState.IDLE, PhoneState.BUSY}:
        raise InvalidState(f"{phone.serial} is {phone.status.state}; connect it to its host first")
    return phone


def _send_command(
    lab: LabConnection,
    serial: str,
    kind: CommandKind,
    sizes: tuple[int, ...] = (),
    timeout_s: float = CHECK_TIMEOUT_S,
) -> CommandOutcome:
    """Send a command to the phone's host and wait for the result."""
    phone = _present_phone(lab, serial)
    if phone.status.state is PhoneState.BUSY:
        raise InvalidState(f"{phone.serial} is busy; repeat it when the phone is idle")
    command = Command(kind=kind, phone=phone.serial, id=secrets.token_hex(8), sizes=sizes)
    return _ask_host(lab, phone.host, command, timeout_s)


def _ask_about_address(
    lab: LabConnection, kind: CommandKind, address: str, host: str, code: str = ""
) -> CommandOutcome:
    """Send a command about a phone's address to a host: the named one, or the only one."""
    try:
        parsed = parse_phone_address(address)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    hosts = sorted(heartbeat.host for heartbeat in lab.broker.heartbeats())
    if not hosts:
        raise InvalidState("no agent is running; start one with 'farm up' or 'farm service agent'")
    if host not in hosts and (host or len(hosts) > 1):
        raise InvalidRequest(f"name one of the hosts {', '.join(hosts)} with --host")
    command = Command(kind=kind, address=parsed, code=code, id=secrets.token_hex(8))
    return _ask_host(lab, host or hosts[0], command, CONNECT_TIMEOUT_S)


def _ask_host(lab: LabConnection, host: str, command: Command, timeout_s: float) -> CommandOutcome:
    lab.job_queue.send_command(host, command)
    deadline = time.monotonic() + timeout_s
    while (outcome := phone_health.find_command_result(lab.store, command.id)) is None:
        if time.monotonic() > deadline:
            raise TimedOut(f"{host} did not answer within {timeout_s:.0f} s")
        time.sleep(RESULT_POLL_S)
    return outcome
