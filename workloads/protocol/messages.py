"""Every message between the central services and the agents, and the names of queues and keys.

Messages are JSON text: frozen, versioned, limited in size (limits.py), validated by the receiver.

To an agent, on the Celery queue host_queue(HOST):
    farm.run      a Job, which requests exactly one run
    farm.command  a Command, which requests anything else
From an agent, on the Celery queue farm.results:
    farm.deliver  the host's name and a list of parcels: Report, Chunk, PhoneAnnouncement,
                  CommandResult. The agent keeps every parcel in its spool and resends it until the
                  central services list its parcel_id under confirmed_key(HOST), so a lost or a
                  repeated parcel changes nothing.
In Redis:
    farm:hosts            names of hosts
    farm:heartbeat:HOST   the latest HostHeartbeat; it expires by itself
    farm:confirmed:HOST   ids of parcels that are stored
"""

import base64
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from workloads.catalogue import Case
from workloads.protocol.base import WireModel
from workloads.protocol.condition import Condition
from workloads.protocol.faults import FarmTrouble, Fault, FaultKind
from workloads.protocol.limits import CHUNK_BYTES_MAX
from workloads.protocol.metrics import Metric
from workloads.protocol.phone_facts import ControlLevel, PhoneFacts
from workloads.protocol.stage import Stage
from workloads.protocol.unusable_phone import UnusablePhone
from workloads.protocol.verdict import Verdict

# Names of Celery tasks: each side sends by name and imports no function of the other.
RUN = "farm.run"
COMMAND = "farm.command"
DELIVER = "farm.deliver"
RESULTS_QUEUE = "farm.results"
HOSTS_KEY = "farm:hosts"

HOST_PATTERN = r"^[a-z0-9][a-z0-9.-]{0,62}$"
Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")]
HostName = Annotated[str, Field(pattern=HOST_PATTERN)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def host_queue(host: str) -> str:
    """Return the queue of a host's agent, for jobs and commands."""
    return f"farm.host.{host}"


def heartbeat_key(host: str) -> str:
    """Return the key of a host's heartbeat."""
    return f"farm:heartbeat:{host}"


def confirmed_key(host: str) -> str:
    """Return the key of the list of a host's parcels that are stored."""
    return f"farm:confirmed:{host}"


class RunId(WireModel):
    """Identifies a run: the trial, its repeat, and the attempt, which fences off earlier ones."""

    trial: str = Field(pattern=r"^tr-[0-9a-f]{16}$")
    repeat: int = Field(ge=0)
    attempt: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.trial}.{self.repeat}.{self.attempt}"


class Job(WireModel):
    """Request one run on one phone."""

    version: Literal[1] = 1
    run: RunId
    phone: Serial
    fence: int = Field(ge=1, description="increases with every lease of this phone")
    lease_timeout_s: float = Field(
        gt=0, description="the lease expires after this long without a heartbeat"
    )
    case: Case
    condition: Condition
    telemetry: bool = Field(default=True, description="whether the sensor readings are sent back")


class CommandKind(StrEnum):
    """What an agent can be asked to do besides a run."""

    RESEND_FACTS = "resend_facts"  # announce all phones again
    CANCEL = "cancel"  # stop the run `run`
    RESTORE = "restore"  # undo all changes on the phone `phone`
    CHECK = "check"  # test the phone `phone`
    TUNE = "tune"  # tune OpenCL kernels on the phone `phone`


class Command(WireModel):
    """Request something other than a run; a repeated command has no further effect."""

    version: Literal[1] = 1
    kind: CommandKind
    run: RunId | None = None
    phone: Serial | None = None
    id: str = Field(default="", max_length=64, description="id of the CommandResult")
    sizes: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        default=(), max_length=16, description="sizes of square matrix products, for TUNE"
    )


class AppliedCondition(WireModel):
    """The condition as it was applied to this phone: cores, clocks, threads."""

    cpus: tuple[int, ...] = ()
    mask: str = ""
    clocks_khz: dict[int, int] = Field(default_factory=dict)
    gpu_khz: int | None = None
    threads: int = 0


class Report(WireModel):
    """The outcome of one job: metrics with a verdict, or a fault. The store keeps it verbatim."""

    kind: Literal["report"] = "report"
    version: Literal[1] = 1
    run: RunId
    host: HostName
    phone: Serial
    case_digest: Digest
    condition_digest: Digest
    started_at: datetime
    ended_at: datetime
    stage_seconds: dict[Stage, float] = Field(default_factory=dict)
    control: ControlLevel | None = None
    boot_id: str | None = None
    runner: str | None = None
    applied: AppliedCondition = AppliedCondition()
    metrics: tuple[Metric, ...] = ()
    verdict: Verdict | None = None
    fault: Fault | None = None
    restore_error: str | None = Field(
        default=None, max_length=400, description="what could not be restored on the phone"
    )
    step_time_curve: tuple[tuple[float, float], ...] = Field(
        default=(), max_length=128, description="of a long run: time in s and step time in ms"
    )
    telemetry: Digest | None = Field(default=None, description="digest of the telemetry blob")
    chunks: int = Field(default=0, description="number of chunks of that blob")

    @property
    def parcel_id(self) -> str:
        """The id under which the central services confirm it."""
        return f"report:{self.run}"


class Chunk(WireModel):
    """A part of a telemetry blob or a file; sent before the message that names its digest."""

    kind: Literal["chunk"] = "chunk"
    version: Literal[1] = 1
    digest: Digest
    index: int = Field(ge=0)
    count: int = Field(ge=1, le=64)
    data: str = Field(description="base64")

    @field_validator("data")
    @classmethod
    def _is_base64(cls, data: str) -> str:
        base64.b64decode(data, validate=True)
        return data

    @property
    def parcel_id(self) -> str:
        """The id under which the central services confirm it."""
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

    @property
    def parcel_id(self) -> str:
        """The id under which the central services confirm it."""
        return f"announcement:{self.facts.serial}:{self.facts_digest}"


class CommandResult(WireModel):
    """The result of a RESTORE, CHECK or TUNE command."""

    kind: Literal["command_result"] = "command_result"
    version: Literal[1] = 1
    host: HostName
    phone: Serial
    id: str = Field(min_length=1, max_length=64)
    command: CommandKind
    finished_at: datetime
    succeeded: bool
    text: str = Field(max_length=1000)
    file: Digest | None = Field(
        default=None, description="digest of a file that was sent in chunks"
    )

    @property
    def parcel_id(self) -> str:
        """The id under which the central services confirm it."""
        return f"command:{self.id}"


AnyParcel = Report | Chunk | PhoneAnnouncement | CommandResult
Parcel = Annotated[AnyParcel, Field(discriminator="kind")]


class CoolingEstimate(WireModel):
    """How a phone cools while it is idle."""

    rest_c: float = Field(description="temperature at rest, °C")
    time_constant_s: float = Field(gt=0, description="in seconds of the host")


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
    reason: str = Field(default="", description="why it is away")
    facts_digest: Digest | None = None
    run: RunId | None = None
    stage: Stage | None = None
    progress: float | None = None
    temp_c: float | None = None
    battery_pct: int | None = None
    cool_in_s: tuple[float, float, float] | None = Field(
        default=None,
        description="until it is cool, in seconds of the host: likely, earliest, latest",
    )
    cooling: CoolingEstimate | None = None
    remaining_s: float | None = Field(
        default=None, description="until the run ends, in seconds of the host"
    )
    steps: int | None = Field(default=None, description="steps done by the current run")
    locked_khz: dict[int, int] = Field(
        default_factory=dict, description="pinned clocks by policy, read back"
    )
    clocks_khz: dict[int, int] = Field(default_factory=dict, description="sampled clocks by policy")
    power_w: float | None = None
    flaps: int = Field(default=0, ge=0, description="how often it disconnected in the last minutes")


class HostHeartbeat(WireModel):
    """A host's heartbeat: all its phones and what they are doing."""

    version: Literal[1] = 1
    host: HostName
    unusable: tuple[UnusablePhone, ...] = Field(
        default=(), max_length=300, description="phones that it sees and cannot use"
    )
    sent_at: datetime
    max_parallel: int
    phones: tuple[PhoneStatus, ...] = ()


class EventKind(StrEnum):
    """What happened."""

    SUBMITTED = "submitted"
    ACCEPTED = "accepted"
    VOID = "void"
    FAULT = "fault"
    STALE = "stale"
    EXPIRED = "expired"
    CONVERGED = "converged"
    POISONED = "poisoned"
    HEALTH = "health"
    CONTROL = "control"


class Event(WireModel):
    """Something that happened, for displays only; no program decides on it."""

    occurred_at: datetime
    kind: EventKind
    text: str
    sweep: str = ""
    phone: str = ""
    host: str = ""


PARCEL_ADAPTER: TypeAdapter[AnyParcel] = TypeAdapter(Parcel)
Message = TypeVar("Message", bound=WireModel)


class BadMessage(FarmTrouble):
    """a message does not follow the protocol; check that both sides have the same version"""

    kind = FaultKind.BAD_MESSAGE


def decode(kind: type[Message], content: object, limit: int) -> Message:
    """Parse a message from outside; anything but valid JSON text within the limit is a BadMessage.

    The size is checked before anything is parsed.
    """
    if not isinstance(content, str | bytes):
        raise BadMessage(f"bad {kind.__name__}: JSON text expected, got {type(content).__name__}")
    size = len(content) if isinstance(content, bytes) else len(content.encode(errors="replace"))
    if size > limit:
        raise BadMessage(f"bad {kind.__name__}: {size} bytes, at most {limit} are allowed")
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadMessage(f"bad {kind.__name__}: {where}: {first['msg']}") from error


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
