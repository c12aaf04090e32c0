"""Preparing: what a run needs lies on the phone before it cools. What heats, heats before."""

from dataclasses import replace
from pathlib import Path

from agent.phone.phone import Phone
from agent.run.data import install_data
from agent.run.external import install_program
from agent.run.kernels import install_kernels
from agent.run.runner import Ask, write_plan
from agent.run.scene import Scene
from agent.run.tuning import install_tuned
from kernels.manifest import kernel_shelf
from workloads.catalogue import launch_of
from workloads.messages import Job


def prepare(phone: Phone, job: Job, runner: str, scene: Scene, shelf: Path, state_dir: Path) -> Ask:
    """Bring plan, node list, data, kernels or a foreign program, and answer what to launch."""
    launching = launch_of(job.case, job.condition.launch)
    hz = job.condition.sample_hz
    ask = Ask(runner, job.case, scene.cores, launching, scene.sampled, sample_hz=hz)
    if ask.case.data is not None:
        ask = replace(ask, data=install_data(phone, ask.case.data, shelf))
    if ask.case.backend == "opencl":
        there = install_kernels(phone, kernel_shelf())
        ask = replace(ask, kernels=there, tuned=install_tuned(phone, state_dir))
    if ask.case.manifest is None:
        write_plan(phone, ask, dare=job.condition.too_large == "try")
    else:
        install_program(phone, ask, shelf)
    return ask
