"""The runner on the phone: pushed when its digest is not there yet, asked who it is."""

import json

from pydantic import Field

from agent.deadline import Deadline
from agent.phone.phone import HOME, Answer, Command, Phone
from kernels.manifest import RunnerBuild
from workloads.fault import BadOutput
from workloads.measure import Provenances
from workloads.noun import Noun
from workloads.text import safe_text


class RunnerInfo(Noun):
    """What the runner says of itself and of where this phone's numbers come from."""

    contract: int = Field(ge=1, le=1)
    runner: str
    abi: str
    backends: tuple[str, ...]
    provenance: Provenances


def runner_path(build: RunnerBuild) -> str:
    """Where a runner lives on every phone."""
    return f"{HOME}/{build.file_name}"


def looking_for(build: RunnerBuild) -> Command:
    """The command that shows whether this very runner is on the phone."""
    return Command(["sha256sum", runner_path(build)])


def install_runner(
    phone: Phone,
    build: RunnerBuild,
    deadline: Deadline | None = None,
    seen: Answer | None = None,
) -> str:
    """Have this very runner on the phone and answer its path; pushed only if it differs.

    `seen` is what looking_for showed, where somebody has looked already.
    """
    path = runner_path(build)
    there = seen or phone.batch([looking_for(build)], deadline)[0]
    if there.status != 0 or there.text.split(" ")[0] != build.digest:
        phone.push(build.content, path, mode=0o755, deadline=deadline)
    return path


def install_one_that_starts(
    phone: Phone, build: RunnerBuild, deadline: Deadline | None = None
) -> tuple[RunnerBuild, RunnerInfo | str]:
    """Install a runner, or the first of its spares that starts here; answer which, and its info."""
    while True:
        try:
            return build, ask_runner(phone, install_runner(phone, build, deadline), deadline)
        except BadOutput:
            if build.spare is None:
                raise
            build = build.spare


def ask_runner(phone: Phone, path: str, deadline: Deadline | None = None) -> RunnerInfo | str:
    """Ask the runner for its info; a sentence when there is no runner for this phone yet."""
    answer = phone.shell([path, "info"], deadline)
    try:
        said = json.loads(answer.text.strip().splitlines()[-1])
        if said["line"] == "fault":
            if said["code"] == "no_runner":
                return safe_text(said["text"])
            raise BadOutput(f"runner info: {safe_text(said['text'])}")
        known = {name: said[name] for name in RunnerInfo.model_fields}
        return RunnerInfo.model_validate_json(json.dumps(known))
    except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        said_text = safe_text(answer.text, 120) or f"nothing, status {answer.status}"
        raise BadOutput(f"runner info breaks the contract: {said_text}") from error
