"""Install the runner on a phone if its digest differs, and read its version and backends."""

import json

from pydantic import ConfigDict, Field

from agent.deadline import Deadline
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from agent.phone.shell_command import ShellCommand, ShellResult
from kernels.runner_builds import RunnerBuild
from workloads.protocol.base import WireModel
from workloads.protocol.faults import BadOutput, PhoneTrouble
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import OpenCLFacts
from workloads.text import safe_text

MIB = 2**20
NAME_MAX = 128
NOT_EXECUTED = 126  # status of a shell that may not execute a file, or cannot


class OpenCLInfo(WireModel):
    """An OpenCL device in `runner info`; members that are not needed here are ignored."""

    model_config = ConfigDict(extra="ignore")

    device: str
    version: str
    driver: str
    units: int = Field(ge=0, le=2**31)
    global_bytes: int = Field(ge=0, le=2**63)
    max_alloc_bytes: int = Field(ge=0, le=2**63)

    def as_fact(self) -> OpenCLFacts:
        """The device without control characters, in MB."""
        return OpenCLFacts(
            name=safe_text(self.device, NAME_MAX),
            version=safe_text(self.version, NAME_MAX),
            driver=safe_text(self.driver, NAME_MAX),
            units=self.units,
            memory_mb=self.global_bytes // MIB,
            max_alloc_mb=self.max_alloc_bytes // MIB,
        )


class RunnerInfo(WireModel):
    """What `runner info` prints: contract, ABI, backends, and the sources of this phone's data."""

    contract: int = Field(ge=1, le=1)
    runner: str
    abi: str
    backends: tuple[str, ...]
    features: tuple[str, ...] = ()
    opencl: tuple[OpenCLInfo, ...]
    provenance: Provenances

    @property
    def opencl_facts(self) -> OpenCLFacts | None:
        """The device that a run uses by default: the first."""
        return self.opencl[0].as_fact() if self.opencl else None


def runner_path(build: RunnerBuild) -> str:
    """The path of a runner, the same on every phone."""
    return f"{HOME}/{build.file_name}"


def runner_digest_command(phone: Phone, build: RunnerBuild) -> ShellCommand:
    """The command that shows whether exactly this runner is on the phone."""
    return phone.digest_command(runner_path(build))


def install_runner(
    phone: Phone,
    build: RunnerBuild,
    deadline: Deadline | None = None,
    digest: ShellResult | None = None,
) -> str:
    """Push exactly this runner unless the phone has it, and return its path.

    `digest` is the result of runner_digest_command if the caller has it already.
    """
    path = runner_path(build)
    installed = digest or phone.shell_batch([runner_digest_command(phone, build)], deadline)[0]
    if not phone.has_printed_digest(installed, build.digest, lambda: build.content):
        phone.push(build.content, path, mode=0o755, deadline=deadline)
    return path


def install_working_runner(
    phone: Phone, build: RunnerBuild, deadline: Deadline | None = None
) -> tuple[RunnerBuild, RunnerInfo | str]:
    """Install a runner, or the first of its fallbacks that starts; return which, and its info."""
    phone.find_digest_tool(deadline)
    while True:
        try:
            return build, read_runner_info(phone, install_runner(phone, build, deadline), deadline)
        except BadOutput:
            if build.fallback is None:
                raise
            build = build.fallback


def read_runner_info(phone: Phone, path: str, deadline: Deadline | None = None) -> RunnerInfo | str:
    """Read the runner's info; a sentence if there is no runner for this phone yet."""
    result, executable = phone.shell_batch(
        [ShellCommand([path, "info"]), ShellCommand(["test", "-x", path])], deadline
    )
    if result.status == NOT_EXECUTED and executable.status != 0:
        folder = path.rpartition("/")[0]
        raise PhoneTrouble(
            f"{phone.address} does not execute files in {folder}; "
            "mount its file system without noexec"
        )
    try:
        record = json.loads(result.text.strip().splitlines()[-1])
        if record["line"] == "fault":
            if record["code"] == "no_runner":
                return safe_text(record["text"])
            raise BadOutput(f"runner info: {safe_text(record['text'])}")
        members = {name: record[name] for name in RunnerInfo.model_fields}
        return RunnerInfo.model_validate_json(json.dumps(members))
    except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        output = safe_text(result.text, 120) or f"nothing, status {result.status}"
        raise BadOutput(f"runner info breaks the contract: {output}") from error
