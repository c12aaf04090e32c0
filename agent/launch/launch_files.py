"""Bring everything that a run needs to the phone before it cools: pushing files heats the phone.

The host stores data files by digest; each is pushed to a phone once.
"""

import re
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

from agent.collect.run_probe import RunProbe
from agent.launch.external_process import install_program
from agent.launch.launch_spec import TRACE_STEPS, LaunchSpec
from agent.launch.opencl_kernels import install_kernels
from agent.launch.opencl_tuning import install_tuning_file
from agent.launch.runner_process import write_plan
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from kernels.runner_builds import kernel_sources
from workloads.catalogue import launch_for
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import Job, RunId

OTHER_CHECKPOINT_BYTES_MAX = 10**9  # of runs that may be repeated; 180 MB for 15 M parameters
REMOVED_MAX = 100  # per command
_CHECKPOINT = re.compile(r"^(\d{1,12}) (\d{1,15}) (checkpoint-[\w.-]+)$", re.MULTILINE)


def prepare_launch(
    phone: Phone, job: Job, runner: str, probe: RunProbe, files_dir: Path, state_dir: Path
) -> LaunchSpec:
    """Bring plan, node list, data, kernels or an external program, and return what to launch."""
    spec = LaunchSpec(
        runner=runner,
        case=job.case,
        cores=probe.cores,
        launch=launch_for(job.case, job.condition.launch),
        nodes=probe.sampled_nodes,
        period_ms=job.condition.sample_period_ms,
        trace_steps=job.condition.trace_steps or TRACE_STEPS,
    )
    if spec.case.data is not None:
        spec = replace(spec, data=install_data_file(phone, spec.case.data, files_dir))
    if spec.case.backend == "opencl":
        kernels = install_kernels(phone, kernel_sources())
        spec = replace(spec, kernels=kernels, tuned=install_tuning_file(phone, state_dir))
    if job.condition.resume_s is not None and spec.case.manifest is None:
        path = prepare_checkpoint(phone, job.run)
        spec = replace(spec, checkpoint=path, checkpoint_s=job.condition.resume_s)
    if spec.case.manifest is None:
        write_plan(phone, spec, allow_oversize=job.condition.too_large == "try")
    else:
        install_program(phone, spec, files_dir)
    return spec


def prepare_checkpoint(phone: Phone, run: RunId) -> str:
    """Return the path of a run's checkpoint, which all its attempts share; limit the others.

    Another run may take place between two attempts of a run, so its checkpoint is kept.
    """
    own = f"checkpoint-{run.trial}.{run.repeat}"
    listing = phone.shell(["sh", "-c", f"cd {HOME} && stat -c '%Y %s %n' checkpoint-*"])
    if surplus := surplus_checkpoints(listing.text, own):
        phone.shell(["rm", "-f", *(f"{HOME}/{name}" for name in surplus)])
    return f"{HOME}/{own}"


def surplus_checkpoints(listing: str, own: str) -> list[str]:
    """Return the oldest checkpoints of other runs, beyond the bytes that they may take."""
    files = [(int(file[1]), int(file[2]), file[3]) for file in _CHECKPOINT.finditer(listing)]
    others = sorted((file for file in files if file[2] != own), reverse=True)
    totals = accumulate(size for _, size, _ in others)
    surplus = [
        name
        for (_, _, name), total in zip(others, totals, strict=True)
        if total > OTHER_CHECKPOINT_BYTES_MAX
    ]
    return surplus[:REMOVED_MAX]


FILE_BYTES_MAX = 512 * 1024 * 1024


def install_data_file(phone: Phone, digest: str, files_dir: Path) -> str:
    """Push exactly this data file unless the phone has it, and return its path."""
    path = f"{HOME}/data-{digest[:16]}"

    def content() -> bytes:
        return _read_from_host(digest, files_dir)

    installed = phone.shell_batch([phone.digest_command(path)])[0]
    if not phone.has_printed_digest(installed, digest, content):
        phone.push(content(), path)
    return path


def _read_from_host(digest: str, files_dir: Path) -> bytes:
    file = files_dir / digest
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise InvalidRequest(
                f"the data file {digest[:12]}... is larger than {FILE_BYTES_MAX >> 20} MB; "
                "make it smaller"
            )
        content = file.read_bytes()
    except OSError:
        raise InvalidRequest(
            f"the data file {digest[:12]}... is not on this host; add it with "
            "'farm workload add --dataset' to the lab folder that this agent uses"
        ) from None
    if sha256(content).hexdigest() != digest:
        raise InvalidRequest(
            f"{files_dir.name}/{digest[:12]}... is damaged (its SHA-256 is not its name); "
            "add it again"
        )
    return content
