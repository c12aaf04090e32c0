"""How many good runs of this computer are valid? (real execution)

    python -m benchmarks.native_verdicts [--labs N] [--repeats N] [--backend opencl]

Each lab is fresh: a native phone that remembers nothing, so its first runs learn the references.
Twelve workloads run on one and on two cores, in blocks of random order. Nothing disturbs them but
what this computer does itself, so every suspect run is a good run lost. A trial is judged together
when it is complete, as in a lab. The load is printed with each lab: compare labs of equal load.
"""

import argparse
import os
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.virtual.fleet_server import FleetConfig
from benchmarks.verdicts import VerdictBench, judged_together, numbers_of, rate
from kernels.pocl import pocl_environment
from orchestrator.supervisor.virtual_phones import NATIVE
from workloads.catalogue import Case, bind
from workloads.protocol.condition import Condition
from workloads.protocol.messages import Job, Report, RunId
from workloads.protocol.verdict import Reason, Validity

CPU_WORKLOADS: tuple[tuple[str, dict[str, int]], ...] = (
    ("mlp-3", {}),
    ("mlp-4", {}),
    ("mlp-4", {"batch_size": 256}),
    ("lenet", {"batch_size": 4}),
    ("lenet", {"batch_size": 16}),
    ("resnet20", {"batch_size": 4}),
    ("densenet40", {"batch_size": 1}),
    ("char-lstm", {}),
    ("decoder-1m", {}),
    ("sgemm-square", {"n": 256}),
    ("sgemm-square", {"n": 512}),
    ("sgemm", {"m": 1, "n": 4096, "k": 4096}),  # waits for memory
)
GPU_WORKLOADS = tuple(work for work in CPU_WORKLOADS if work[0][:3] in {"mlp", "len", "res", "sge"})
CORES = ("all1", "all2")
REASONS_SHOWN = 4


@dataclass(frozen=True)
class NativeRun:
    """One run, judged alone and with the other runs of its trial."""

    repeat: int
    cores: str
    report: Report
    together: Validity
    reasons: tuple[Reason, ...]


def measure_lab(
    phone: Phone, folder: Path, works: Sequence[Case], options: argparse.Namespace, seed: int
) -> list[NativeRun]:
    """Make all runs of one fresh lab, and judge each trial."""
    rng, reports = random.Random(seed), dict[tuple[str, str], list[Report]]()
    cells, fences = [(case, cores) for case in works for cores in CORES], count(1)
    for repeat in range(options.repeats):
        for case, cores in rng.sample(cells, len(cells)):
            condition = Condition(cores=cores, freq="free", time_min_s=options.seconds)
            job = Job(
                run=RunId(trial="tr-" + "0" * 16, repeat=repeat, attempt=1),
                phone=phone.facts.serial,
                fence=next(fences),
                lease_timeout_s=60,
                case=case,
                condition=condition,
                telemetry=False,
            )
            report = run_attempt(job, phone, LaneContext("bench", folder)).report
            if report.verdict is None:
                print(f"  {case.label} on {cores}: {report.fault and report.fault.text}")
                continue
            reports.setdefault((case.digest, cores), []).append(report)
    runs = []
    for (_, cores), trial in reports.items():
        verdicts = judged_together([numbers_of(report) for report in trial])
        for report, verdict in zip(trial, verdicts, strict=True):
            bad = tuple(each for each in verdict.reasons if each.validity is not Validity.VALID)
            runs.append(NativeRun(report.run.repeat, cores, report, verdict.validity, bad))
    return runs


def print_lab(name: str, runs: Sequence[NativeRun]) -> None:
    """Print which runs of a lab count, first runs apart from later ones."""
    for cores in CORES:
        own = [run for run in runs if run.cores == cores]
        first = [run for run in own if run.repeat == 0]
        cells = [rate(sum(map(_is_valid_alone, group)), len(group)) for group in (first, own)]
        together = rate(sum(run.together is Validity.VALID for run in own), len(own))
        void = sum(run.report.verdict is not None and run.together is Validity.VOID for run in own)
        print(f"{name:<8} {cores:<6} {cells[0]:<28} {cells[1]:<28} {together:<28} {void}")
    codes = Counter(reason.code.value for run in runs for reason in run.reasons[:1])
    shown = ", ".join(f"{code} {count}" for code, count in codes.most_common(REASONS_SHOWN))
    print(f"         load {os.getloadavg()[0]:.1f}; lost for: {shown or 'nothing'}", flush=True)


def _is_valid_alone(run: NativeRun) -> bool:
    return run.report.verdict is not None and run.report.verdict.validity is Validity.VALID


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a run")
    parser.add_argument("--backend", choices=("cpu", "opencl"), default="cpu")
    options = parser.parse_args()
    if options.backend == "opencl":
        os.environ |= {"FARM_OPENCL": "pocl", **(pocl_environment() or {})}
    works = CPU_WORKLOADS if options.backend == "cpu" else GPU_WORKLOADS
    cases = [bind(name, parameters, backend=options.backend) for name, parameters in works]
    headings = ("lab", "cores", "first runs valid", "all runs valid", "in their trial", "void")
    print("{:<8} {:<6} {:<28} {:<28} {:<28} {}".format(*headings))
    for lab in range(options.labs):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            bench = VerdictBench(stack.enter_context(AdbServer(folder)))
            config = FleetConfig(NATIVE, speed=1.0)
            _, phone = stack.enter_context(bench.connect(config))
            bench.probe(phone)
            print_lab(f"lab {lab + 1}", measure_lab(phone, folder, cases, options, lab))


if __name__ == "__main__":
    main()
