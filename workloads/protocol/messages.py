"""Everything that crosses the queue, and the names of the queues and keys it crosses on.

Messages are frozen, versioned, size-limited and validated on both ends. A Job asks for exactly one
Run. What an agent sends back are parcels: each is kept in its spool until the centre confirms its
id, so losing or doubling one on the way changes nothing.
"""

import base64
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.fault import Blame, FarmTrouble, Fault
from workloads.lab import HOST_PATTERN
from workloads.measure import Metric, Verdict
from workloads.noun import Noun
from workloads.phone import ControlLevel, PhoneFacts

JOB_BYTES_MAX = 64 * 1024
REPORT_BYTES_MAX = 256 * 1024
CHUNK_BYTES_MAX = 1024 * 1024
DELIVERY_BYTES_MAX = 2 * 1024 * 1024
DELIVERY_PARCELS_MAX = 100
FILE_MARK = "file:"  # in an answer: the digest of what came with it, in chunks

# Celery sends by name, so neither side imports the other's functions.
RUN = "farm.run"
COMMAND = "farm.command"
DELIVER = "farm.deliver"
RESULTS_QUEUE = "farm.results"
HOSTS_KEY = "farm:hosts"

Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")]
HostName = Annotated[str, Field(pattern=HOST_PATTERN)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ByHand = Literal["restore", "check", "tune"]  # what somebody asks of one phone, and is answered


def queue_for(host: str) -> str:
    """The queue of a host's agent: jobs and commands."""
    return f"farm.host.{host}"


def presence_key(host: str) -> str:
    """Where a host's heartbeat stands."""
    return f"farm:presence:{host}"


def confirmed_key(host: str) -> str:
    """Where the centre lists the parcels it has stored for good."""
    return f"farm:confirmed:{host}"


class RunId(Noun):
    """Which run: a trial's repeat, and the attempt that fences all earlier ones off."""

    trial: str = Field(pattern=r"^tr-[0-9a-f]{16}$")
    repeat: int = Field(ge=0)
    attempt: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.trial}.{self.repeat}.{self.attempt}"


class Job(Noun):
    """Ask a lane for one run."""

    version: Literal[1] = 1
    run: RunId
    phone: Serial
    fence: int = Field(ge=1, description="grows with every lease of this phone")
    lease_s: float = Field(gt=0, description="how long silence is taken for life")
    case: Case
    condition: Condition
    telemetry: bool = Field(default=True, description="whether the readings are kept")


class Command(Noun):
    """Ask an agent for something other than a run; doing it twice is doing it once."""

    version: Literal[1] = 1
    verb: Literal["announce", "cancel", "restore", "check", "tune"]
    run: RunId | None = None
    phone: Serial | None = None
    id: str = Field(default="", max_length=64, description="under which the answer is found")
    sizes: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        default=(), max_length=16, description="of square products, to tune"
    )


class Resolved(Noun):
    """What the condition's names turned into on this phone."""

    cpus: tuple[int, ...] = ()
    mask: str = ""
    clocks_khz: dict[int, int] = Field(default_factory=dict)
    gpu_khz: int | None = None
    threads: int = 0


class Report(Noun):
    """What became of one job: figures with a verdict, or a fault. Kept verbatim for good."""

    kind: Literal["report"] = "report"
    version: Literal[1] = 1
    run: RunId
    host: HostName
    phone: Serial
    case_digest: Digest
    condition_digest: Digest
    started_at: datetime
    ended_at: datetime
    stage_s: dict[str, float] = Field(default_factory=dict)
    control: ControlLevel | None = None
    boot_id: str | None = None
    runner: str | None = None
    resolved: Resolved = Resolved()
    metrics: tuple[Metric, ...] = ()
    verdict: Verdict | None = None
    fault: Fault | None = None
    curve: tuple[tuple[float, float], ...] = Field(
        default=(), max_length=128, description="of a long run: seconds, and step time in ms"
    )
    telemetry: Digest | None = None
    chunks: int = 0

    @property
    def parcel(self) -> str:
        """The id under which the centre confirms it."""
        return f"report:{self.run}"


class Chunk(Noun):
    """A piece of a telemetry blob; sent before the report that names the blob."""

    kind: Literal["chunk"] = "chunk"
    version: Literal[1] = 1
    digest: Digest
    index: int = Field(ge=0)
    count: int = Field(ge=1, le=64)
    data: str

    @field_validator("data")
    @classmethod
    def _is_base64(cls, data: str) -> str:
        base64.b64decode(data, validate=True)
        return data

    @property
    def parcel(self) -> str:
        """The id under which the centre confirms it."""
        return f"chunk:{self.digest}:{self.index}"

    @property
    def content(self) -> bytes:
        """The piece itself."""
        return base64.b64decode(self.data, validate=True)


class Sighting(Noun):
    """A phone and what is known of it, told whenever that changes."""

    kind: Literal["sighting"] = "sighting"
    version: Literal[1] = 1
    host: HostName
    facts: PhoneFacts
    facts_digest: Digest

    @property
    def parcel(self) -> str:
        """The id under which the centre confirms it."""
        return f"sighting:{self.facts.serial}:{self.facts_digest}"


class Checkup(Noun):
    """The answer to a restore, a check or a tune: whether it went well, and what was found."""

    kind: Literal["checkup"] = "checkup"
    version: Literal[1] = 1
    host: HostName
    phone: Serial
    id: str = Field(min_length=1, max_length=64)
    verb: ByHand
    at: datetime
    good: bool
    text: str = Field(max_length=1000)

    @property
    def parcel(self) -> str:
        """The id under which the centre confirms it."""
        return f"checkup:{self.id}"


AnyParcel = Report | Chunk | Sighting | Checkup
Parcel = Annotated[AnyParcel, Field(discriminator="kind")]


class PhonePresence(Noun):
    """A phone as its agent sees it right now."""

    serial: Serial
    state: Literal["idle", "busy", "away"]
    why: str = ""
    facts_digest: Digest | None = None
    run: RunId | None = None
    stage: str = ""
    progress: float | None = None
    temp_c: float | None = None
    battery_pct: int | None = None
    ready_s: tuple[float, float, float] | None = Field(
        default=None, description="host seconds until cool: likely, earliest, latest"
    )
    cools: tuple[float, Annotated[float, Field(gt=0)]] | None = Field(
        default=None, description="where it comes to rest, in °C, and how fast, in host seconds"
    )
    left_s: float | None = Field(default=None, description="host seconds until the run is over")
    steps: int | None = Field(default=None, description="steps that the run has made")
    locked_khz: dict[int, int] = Field(default_factory=dict, description="by policy, read back")
    clocks_khz: dict[int, int] = Field(default_factory=dict, description="by policy, as sampled")
    power_w: float | None = None
    flaps: int = Field(default=0, ge=0, description="how often it was lost in the last minutes")


class Presence(Noun):
    """A host's heartbeat: everything it has and is doing. It expires by itself."""

    version: Literal[1] = 1
    host: HostName
    at: datetime
    slots: int
    phones: tuple[PhonePresence, ...] = ()


class Event(Noun):
    """A line for whoever watches. Never a source of truth."""

    at: datetime
    kind: str
    text: str
    sweep: str = ""
    phone: str = ""
    host: str = ""


PARCEL: TypeAdapter[AnyParcel] = TypeAdapter(Parcel)
Message = TypeVar("Message", bound=Noun)


class BadMessage(FarmTrouble):
    """A message does not follow the agreed form."""

    blame = Blame.FARM


def decode(kind: type[Message], content: Any, limit: int) -> Message:
    """Read a message that came from outside; anything unexpected is a BadMessage."""
    if isinstance(content, (str, bytes)) and len(content) > limit:
        raise BadMessage(f"a {kind.__name__} of {len(content)} bytes exceeds {limit}")
    try:
        if isinstance(content, (str, bytes)):
            return kind.model_validate_json(content)
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadMessage(f"bad {kind.__name__}: {where}: {first['msg']}") from error


def chunks_of(digest: str, blob: bytes) -> list[Chunk]:
    """Cut a blob into pieces that may travel."""
    size = CHUNK_BYTES_MAX * 3 // 4  # base64 makes four characters of three bytes
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
