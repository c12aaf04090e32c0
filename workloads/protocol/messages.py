"""Every message between the central services and the agents, and the names of queues and keys.

Messages are JSON text: frozen, versioned, limited in size (limits.py), validated by the receiver.

To an agent, on the Celery queue host_queue(HOST):
    farm.run      a Job, which requests exactly one run
    farm.command  a Command, which requests anything else
From an agent, on the Celery queue results_queue(HOST), whose name identifies the sender:
    farm.deliver  a list of parcels: Report, Chunk, PhoneAnnouncement, CommandResult. The agent
                  keeps every parcel in its spool and resends it until the central services list its
                  parcel_id under confirmed_key(HOST), so a lost or a repeated parcel changes
                  nothing.
In Redis:
    farm:heartbeat:HOST   the latest HostHeartbeat; it expires by itself
    farm:confirmed:HOST   ids of parcels that are stored
    farm:ingest:NAME      the latest IngestHeartbeat of each ingest service, named in farm:ingests
"""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from workloads.catalogue import Case
from workloads.protocol.base import Moment, SafeText, WireModel
from workloads.protocol.condition import Condition
from workloads.protocol.faults import FarmTrouble, Fault
from workloads.protocol.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_ENVELOPE_BYTES_MAX,
    HOST_PHONES_MAX,
    REPORT_BYTES_MAX,
)
from workloads.protocol.metrics import PROGRAMS_MAX, KernelProgram, Metric
from workloads.protocol.phone_address import TcpAddress
from workloads.protocol.phone_facts import ControlLevel, PhoneFacts
from workloads.protocol.stage import Stage
from workloads.protocol.unusable_phone import UnusablePhone
from workloads.protocol.verdict import Verdict
from workloads.text import TextEnum, safe_text
from workloads.units import format_ghz

# Names of Celery tasks: each side sends by name and imports no function of the other.
RUN = "farm.run"
COMMAND = "farm.command"
DELIVER = "farm.deliver"
RESULTS_QUEUES = "farm.results."
HEARTBEAT_KEYS = "farm:heartbeat:"
INGESTS_KEY = "farm:ingests"
PROTOCOL = 1  # the version of every message below
COUNT_MAX = 2**31 - 1  # of the integers in the store
FENCE_MAX = 2**31 - 2  # the shell of a phone compares it, and the number above it means unfenced

HOST_PATTERN = r"^[a-z0-9][a-z0-9.-]{0,62}$"
SERIAL_PATTERN = r"^[A-Za-z0-9._:-]{1,64}$"
Serial = Annotated[str, Field(pattern=SERIAL_PATTERN)]
HostName = Annotated[str, Field(pattern=HOST_PATTERN)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
InstanceId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Software = Annotated[str, Field(pattern=r"^[0-9A-Za-z.+!-]{0,40}$")]
Seconds = Annotated[float, Field(ge=0, le=1e8)]
Celsius = Annotated[float, Field(ge=-100, le=300)]
Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Clocks = Annotated[
    dict[Annotated[int, Field(ge=0, le=1023)], Annotated[int, Field(ge=0, le=10**9)]],
    Field(max_length=64),
]


def host_queue(host: str) -> str:
    return f"farm.host.{host}"


def results_queue(host: str) -> str:
    """Return the queue of a host's parcels; no other host may write to it."""
    return f"{RESULTS_QUEUES}{host}"


def heartbeat_key(host: str) -> str:
    return f"{HEARTBEAT_KEYS}{host}"


def ingest_key(instance: str) -> str:
    return f"farm:ingest:{instance}"


def confirmed_key(host: str) -> str:
    """Return the key of the list of a host's parcels that are stored."""
    return f"farm:confirmed:{host}"


class RunId(WireModel):
    """Identifies a run: the trial, its repeat, and the attempt, which fences off earlier ones."""

    trial: str = Field(pattern=r"^tr-[0-9a-f]{16}$")
    repeat: int = Field(ge=0, le=COUNT_MAX)
    attempt: int = Field(ge=1, le=COUNT_MAX)

    def __str__(self) -> str:
        return f"{self.trial}.{self.repeat}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the run that a text names as `str` does."""
        trial, repeat, attempt = text.split(".")
        return cls(trial=trial, repeat=int(repeat), attempt=int(attempt))


class Job(WireModel):
    """Request one run on one phone."""

    version: Literal[1] = 1
    run: RunId
    sweep: SafeText = Field(default="", description="the sweep of the run, for the log")
    phone: Serial
    fence: int = Field(ge=1, le=FENCE_MAX, description="increases with every lease of this phone")
    lease_timeout_s: float = Field(
        gt=0, le=86400, description="the lease expires after this long without a heartbeat"
    )
    case: Case
    condition: Condition
    telemetry: bool = Field(default=True, description="whether the sensor readings are sent back")


class CommandKind(StrEnum):
    """The commands that an agent executes besides runs."""

    RESEND_FACTS = "resend_facts"  # announce all phones again
    CANCEL = "cancel"  # stop the run `run`
    RESTORE = "restore"  # undo all changes on the phone `phone`
    CHECK = "check"  # test the phone `phone`
    TUNE = "tune"  # tune OpenCL kernels on the phone `phone`
    COMMISSION = "commission"  # learn what later runs of the phone `phone` are compared with
    CONNECT = "connect"  # connect the phone at `address`, now and after every start
    DISCONNECT = "disconnect"  # undo CONNECT
    PAIR = "pair"  # pair with the phone at `address` by `code`, and connect it


NO_PHONE = "-"  # the phone in the result of a command that found none


class Command(WireModel):
    """Request something other than a run; a repeated command has no further effect."""

    version: Literal[1] = 1
    kind: CommandKind
    run: RunId | None = None
    phone: Serial | None = None
    address: TcpAddress | None = None
    code: str = Field(default="", pattern=r"^[0-9]{0,8}$", description="of wireless debugging")
    id: str = Field(default="", max_length=64, description="id of the CommandResult")
    sizes: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        default=(), max_length=16, description="sizes of square matrix products, for TUNE"
    )
    quick: bool = Field(default=False, description="for COMMISSION: only canaries and fuel gauge")


class AppliedCondition(WireModel):
    """The condition as it was applied to this phone: cores, clocks, threads."""

    cpus: tuple[int, ...] = ()
    mask: str = ""
    clocks_khz: Clocks = Field(default_factory=dict, description="by policy")
    gpu_khz: int | None = Field(default=None, ge=0, le=10**9)
    threads: int = 0
    screen: tuple[str, ...] = Field(
        default=(), max_length=2, description="wakefulness before and after the run; empty: unknown"
    )
    locked: bool | None = Field(default=None, description="whether the lock screen was shown")
    refused: tuple[str, ...] = Field(
        default=(), max_length=40, description="settings that the phone did not accept"
    )
    start_by: str = Field(default="", max_length=20, description="what the start waited for")
    start_max_c: Celsius | None = Field(default=None, description="that limit on this phone")
    rest_c: Celsius | None = Field(default=None, description="hottest CPU zone at rest")

    @property
    def clock_ghz(self) -> str:
        """The CPU clocks in GHz, by policy, such as 1.13+1.28; empty where none was set."""
        return format_ghz(khz for _, khz in sorted(self.clocks_khz.items()))

    @property
    def gpu_clock_ghz(self) -> float | None:
        """The GPU clock in GHz; None where it was not set."""
        return None if self.gpu_khz is None else self.gpu_khz / 1e6


REPORT_PREFIX = "report:"  # of the ids of reports


class Report(WireModel):
    """The outcome of one job: metrics with a verdict, or a fault. The store keeps it verbatim."""

    kind: Literal["report"] = "report"
    version: Literal[1] = 1
    run: RunId
    host: HostName
    phone: Serial
    case_digest: Digest
    condition_digest: Digest
    started_at: Moment
    ended_at: Moment
    stage_seconds: dict[Stage, Seconds] = Field(default_factory=dict)
    control: ControlLevel | None = None
    boot_id: str | None = None
    runner: str | None = None
    applied: AppliedCondition = AppliedCondition()
    metrics: tuple[Metric, ...] = Field(default=(), max_length=1000)
    programs: tuple[KernelProgram, ...] = Field(
        default=(), max_length=PROGRAMS_MAX, description="that the metrics of a GPU are of"
    )
    verdict: Verdict | None = None
    fault: Fault | None = None
    restore_error: str | None = Field(
        default=None, max_length=400, description="what could not be restored on the phone"
    )
    step_time_curve: tuple[tuple[float, float], ...] = Field(
        default=(), max_length=128, description="of a long run: time in s and step time in ms"
    )
    telemetry: Digest | None = Field(default=None, description="digest of the telemetry blob")
    chunks: int = Field(default=0, ge=0, le=64, description="number of chunks of that blob")

    @property
    def parcel_id(self) -> str:
        return f"{REPORT_PREFIX}{self.run}"


class Chunk(WireModel):
    """A part of a telemetry blob or a file; sent before the message that names its digest."""

    kind: Literal["chunk"] = "chunk"
    version: Literal[1] = 1
    digest: Digest
    index: int = Field(ge=0, le=63)
    count: int = Field(ge=1, le=64)
    data: str = Field(description="base64")

    @field_validator("data")
    @classmethod
    def _is_base64(cls, data: str) -> str:
        base64.b64decode(data, validate=True)
        return data

    @property
    def parcel_id(self) -> str:
        return f"chunk:{self.digest}:{self.index}"

    @property
    def content(self) -> bytes:
        """The bytes of the part."""
        return base64.b64decode(self.data, validate=True)


class PhoneAnnouncement(WireModel):
    """A phone and its facts, sent whenever the facts change."""

    kind: Literal["announcement"] = "announcement"
    version: Literal[1] = 1
    host: HostName
    facts: PhoneFacts
    facts_digest: Digest

    @field_validator("facts")
    @classmethod
    def _is_storable(cls, facts: PhoneFacts) -> PhoneFacts:
        if re.fullmatch(SERIAL_PATTERN, facts.serial) is None:
            raise ValueError("the serial has other characters than A-Z, a-z, 0-9 and ._:-")
        _check_integers(facts.model_dump())
        return facts

    @property
    def parcel_id(self) -> str:
        return f"announcement:{self.facts.serial}:{self.facts_digest}"


def _check_integers(value: object) -> None:
    """Refuse integers that other languages and files cannot represent."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            _check_integers(item)
    elif isinstance(value, int) and abs(value) > 2**53:
        raise ValueError("an integer is too large")


class CommandResult(WireModel):
    """The result of a command on a phone."""

    kind: Literal["command_result"] = "command_result"
    version: Literal[1] = 1
    host: HostName
    phone: Serial
    id: str = Field(min_length=1, max_length=64)
    command: CommandKind
    finished_at: Moment
    succeeded: bool
    was_executed: bool = Field(
        default=True, description="whether the phone was tried: a busy one is not"
    )
    text: str = Field(max_length=1000)
    file: Digest | None = Field(
        default=None, description="digest of a file that was sent in chunks"
    )

    @property
    def parcel_id(self) -> str:
        return f"command:{self.id}"


def is_parcel_id(text: object) -> bool:
    """Return whether a text is the id of a parcel; that of a report names its run."""
    if not isinstance(text, str) or ":" not in text:
        return False
    try:
        return not text.startswith(REPORT_PREFIX) or bool(
            RunId.parse(text.removeprefix(REPORT_PREFIX))
        )
    except ValueError:
        return False


AnyParcel = Report | Chunk | PhoneAnnouncement | CommandResult
Parcel = Annotated[AnyParcel, Field(discriminator="kind")]


class CoolingEstimate(WireModel):
    """How a phone cools while it is idle."""

    rest_c: Celsius = Field(description="temperature at rest, °C")
    time_constant_s: float = Field(ge=1e-3, le=1e7, description="in seconds of the host")


class PhoneState(StrEnum):
    """Whether a phone is idle, busy with a job, or not connected."""

    IDLE = "idle"
    BUSY = "busy"
    AWAY = "away"


class PhoneStatus(WireModel):
    """The current state of a phone as its agent sees it."""

    serial: Serial
    address: str = Field(default="", max_length=120, description="how adb reaches it")
    state: PhoneState
    reason: SafeText = Field(default="", description="why it is away")
    facts_digest: Digest | None = None
    run: RunId | None = None
    stage: Stage | None = None
    progress: float | None = Field(default=None, ge=-1, le=2)
    temp_c: Celsius | None = None
    battery_pct: int | None = Field(default=None, ge=-1000, le=1000)
    cool_in_s: tuple[Seconds, Seconds, Seconds] | None = Field(
        default=None,
        description="until it is cool, in seconds of the host: likely, earliest, latest",
    )
    cooling: CoolingEstimate | None = None
    rest_c: Celsius | None = Field(
        default=None, description="hottest CPU zone at rest, as runs of the phone know it"
    )
    remaining_s: float | None = Field(
        default=None, ge=-1e8, le=1e8, description="until the run ends, in seconds of the host"
    )
    steps: int | None = Field(
        default=None, ge=0, le=2**53, description="steps done by the current run"
    )
    locked_khz: Clocks = Field(
        default_factory=dict, description="pinned clocks by policy, read back"
    )
    clocks_khz: Clocks = Field(default_factory=dict, description="sampled clocks by policy")
    power_w: float | None = Field(default=None, ge=-1e6, le=1e6)
    flaps: Count = Field(default=0, description="how often it disconnected in the last minutes")


class HostHeartbeat(WireModel):
    """A host's heartbeat: all its phones and what they are doing."""

    version: Literal[1] = 1
    host: HostName
    unusable: tuple[UnusablePhone, ...] = Field(
        default=(), max_length=300, description="phones that it sees and cannot use"
    )
    sent_at: Moment
    max_parallel: int = Field(ge=1, le=1000)
    phones: tuple[PhoneStatus, ...] = Field(default=(), max_length=HOST_PHONES_MAX)
    software: Software = Field(default="", description="version of the agent")
    instance: InstanceId | None = Field(default=None, description="id of the agent's process")
    rival: InstanceId | None = Field(
        default=None, description="id of another process that sends heartbeats of this host"
    )
    refused: Count = Field(default=0, description="messages to this agent that it could not read")
    refusal: SafeText = Field(default="", description="why it refused the last one")
    unconfirmed: tuple[RunId, ...] = Field(
        default=(), max_length=1000, description="runs whose report is not stored yet"
    )


class HostIdentity(WireModel):
    """What every version of a heartbeat has: enough to name a host with another protocol."""

    model_config = ConfigDict(extra="ignore")

    version: int = Field(ge=0, le=10_000)
    host: HostName
    sent_at: Moment
    software: Software = ""


class IngestHeartbeat(WireModel):
    """The heartbeat of an ingest service, with the messages that it dropped, by host."""

    version: Literal[1] = 1
    sent_at: Moment
    software: Software = ""
    dropped: dict[HostName, Count] = Field(default_factory=dict, max_length=10_000)
    reasons: dict[HostName, SafeText] = Field(
        default_factory=dict, max_length=10_000, description="why the last one was dropped"
    )


class EventKind(TextEnum):
    """What happened."""

    SUBMITTED = "submitted", "a sweep was submitted"
    ACCEPTED = "accepted", "a report was accepted"
    SUSPECT = "suspect", "a run was accepted, but is not compared"
    VOID = "void", "a run was void"
    FAULT = "fault", "an attempt failed"
    STALE = "stale", "a report arrived too late"
    EXPIRED = "expired", "a lease expired"
    CONVERGED = "converged", "a trial reached its precision"
    POISONED = "poisoned", "a case was blocked"
    HEALTH = "health", "the health of a phone changed"
    CONTROL = "control", "an operator changed something"


class Event(WireModel):
    """Something that happened, for displays only; no program decides on it."""

    occurred_at: Moment
    kind: EventKind
    text: SafeText
    sweep: SafeText = ""
    phone: SafeText = ""
    host: SafeText = ""


PARCEL_ADAPTER: TypeAdapter[AnyParcel] = TypeAdapter(Parcel)
Message = TypeVar("Message", bound=WireModel)


class BadMessage(FarmTrouble):
    """a message does not follow the protocol; check that both sides have the same version"""


def decode(kind: type[Message], content: object, limit: int) -> Message:
    """Parse a message from outside; anything but valid JSON text within the limit is a BadMessage.

    The size is checked before anything is parsed.
    """
    text = _checked_size(kind.__name__, content, limit)
    with bad_message(kind.__name__):
        return kind.model_validate_json(text, strict=True)


def decode_parcel(content: object) -> AnyParcel:
    """Parse a parcel as `decode` parses a message."""
    text = _checked_size("parcel", content, CHUNK_BYTES_MAX + CHUNK_ENVELOPE_BYTES_MAX)
    with bad_message("parcel"):
        parcel = PARCEL_ADAPTER.validate_json(text, strict=True)
    if not isinstance(parcel, Chunk):
        _checked_size(type(parcel).__name__, content, REPORT_BYTES_MAX)
    return parcel


def _checked_size(name: str, content: object, limit: int) -> bytes:
    """Return the text of a message as bytes; databases cannot store a NUL character."""
    if not isinstance(content, str | bytes):
        raise BadMessage(f"bad {name}: JSON text expected, got {type(content).__name__}")
    text = content if isinstance(content, bytes) else content.encode(errors="replace")
    if len(text) > limit:
        raise BadMessage(f"bad {name}: {len(text)} bytes, at most {limit} are allowed")
    if b"\\u0000" in text:
        raise BadMessage(f"bad {name}: a text contains a NUL character")
    return text


@contextmanager
def bad_message(name: str) -> Iterator[None]:
    """Turn the error of a model into a BadMessage with the place and the reason."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadMessage(safe_text(f"bad {name}: {where}: {first['msg']}", 300)) from None


def split_into_chunks(digest: str, blob: bytes) -> list[Chunk]:
    """Split a blob into chunks within the size limit."""
    size = CHUNK_BYTES_MAX * 3 // 4  # base64 turns three bytes into four characters
    count = max(1, -(-len(blob) // size))
    return [
        Chunk(
            digest=digest,
            index=index,
            count=count,
            data=base64.b64encode(blob[index * size : (index + 1) * size]).decode(),
        )
        for index in range(count)
    ]
