"""RunResult: verdict, metrics and telemetry of one run."""

from dataclasses import dataclass

from agent.collect.readings import build_telemetry
from agent.judge.run_metrics import measure
from agent.judge.run_observation import RunObservation
from agent.judge.steady_state import step_time_curve
from agent.judge.verdict_rules import judge
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import KernelProgram, Metric
from workloads.protocol.verdict import Verdict


@dataclass(frozen=True)
class RunResult:
    """The result of a run, and the observation that it is based on."""

    observation: RunObservation
    verdict: Verdict
    metrics: tuple[Metric, ...]
    step_time_curve: tuple[tuple[float, float], ...]
    telemetry_digest: str
    telemetry: bytes

    @property
    def programs(self) -> tuple[KernelProgram, ...]:
        """The OpenCL kernels that the run used."""
        built = self.observation.output.programs
        return tuple(KernelProgram.model_validate(one.model_dump()) for one in built)


def evaluate_run(observation: RunObservation) -> RunResult:
    """Judge and measure a run, and pack its telemetry. Pure."""
    output, cores = observation.output, observation.probe.cores
    ops = observation.claimed.cost.ops
    digest, blob = build_telemetry(
        output, observation.readings, ops, observation.series, len(cores.cpus)
    )
    is_long = observation.condition.protocol is not Protocol.COLD
    return RunResult(
        observation=observation,
        verdict=judge(observation),
        metrics=measure(observation),
        step_time_curve=step_time_curve(output.windows) if is_long else (),
        telemetry_digest=digest,
        telemetry=blob,
    )
