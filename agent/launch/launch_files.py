"""Bring everything that a run needs to the phone before it cools: pushing files heats the phone."""

from dataclasses import replace
from pathlib import Path

from agent.collect.run_probe import RunProbe
from agent.launch.data_files import install_data_file
from agent.launch.external_process import install_program
from agent.launch.launch_spec import TRACE_STEPS, LaunchSpec
from agent.launch.opencl_kernels import install_kernels
from agent.launch.opencl_tuning import install_tuning_file
from agent.launch.runner_process import write_plan
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from kernels.runner_builds import kernel_sources
from workloads.catalogue import launch_for
from workloads.protocol.messages import Job, RunId


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
        sample_hz=job.condition.sample_hz,
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
    """Return the path of a run's checkpoint, which all its attempts share; remove older ones."""
    path = f"{HOME}/checkpoint-{run.trial}.{run.repeat}"
    remove = f'for file in {HOME}/checkpoint-*; do [ "$file" = {path} ] || rm -f "$file"; done'
    phone.shell(["sh", "-c", remove])
    return path
