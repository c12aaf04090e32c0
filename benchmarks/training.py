"""Compare a training step of our engine with PyTorch and MNN: same network, batch and threads.

.venv/bin/python -m benchmarks.training --install      create an environment with both, once
.venv/bin/python -m benchmarks.training [--quick] [--json FILE]

The engines take turns in one run. A network is described once, from the farm's definition, and
each engine builds it from that description, with the same number of parameters and the same
initializers. A time counts only after the loss has fallen and every learned tensor has changed.
The ratio is the time of the peer divided by ours: above 1, ours is faster. A star marks a row that
was measured on a busy machine; --cpu then compares CPU time, summed over threads, which other
processes disturb less.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.peers.engine_comparison import (
    QUIET_SHARE,
    Engine,
    InvalidEngine,
    PeerProcess,
    RunnerEngine,
    geometric_mean,
    load_average,
    parse_options,
    time_engines,
)
from benchmarks.peers.network_description import describe_step
from workloads.catalogue import bind, step_of
from workloads.graph import Model
from workloads.layers import ReLU, Tanh
from workloads.training import TrainingStep

MODELS = ("lenet", "resnet20", "squeezenet", "mobilenetv2", "alexnet", "googlenet")
DECODERS = ("decoder-1m", "decoder-15m", "decoder-15m-lora")  # beside PyTorch: MNN trains none
QUICK = ("lenet", "resnet20", "squeezenet")
PEERS = ("torch", "mnn")


@dataclass(frozen=True)
class Comparison:
    """The times of all engines for one network, batch size and number of threads."""

    model: str
    batch: int
    threads: int
    fastest_ms: dict[str, float]
    median_ms: dict[str, float]
    busy: float
    rejected: tuple[str, ...] = ()

    def ratio(self, peer: str) -> float | None:
        """Return how many times faster our engine is than the peer."""
        if peer not in self.fastest_ms or "ours" not in self.fastest_ms:
            return None
        return self.fastest_ms[peer] / self.fastest_ms["ours"]


def make_step(name: str, batch: int) -> TrainingStep:
    """Return a training step that all three engines support.

    MNN 3.6.1 propagates no gradient through tanh, so of LeNet-5 it trains only the last layer.
    LeNet therefore has ReLU here, in every engine.
    """
    step = step_of(bind(name, {"batch_size": batch}))
    assert isinstance(step, TrainingStep)
    (only_pass,) = step.passes
    model = only_pass.model
    nodes = tuple(
        replace(node, layer=ReLU()) if isinstance(node.layer, Tanh) else node
        for node in model.nodes
    )
    with_relu = Model(model.name, model.inputs, nodes, model.published, model.data)
    return replace(step, passes=(replace(only_pass, model=with_relu),))


def measure(name: str, batch: int, threads: int, options: argparse.Namespace) -> Comparison:
    """Time all engines on one case; each peer proves once per network that it trains."""
    step = make_step(name, batch)
    description = describe_step(step)
    rejected: list[str] = []
    engines: list[Engine] = []
    try:
        for peer in options.only:
            if peer == "mnn" and name in DECODERS:
                continue
            engine = (
                RunnerEngine(options.runner, step, threads, options.cpu)
                if peer == "ours"
                else PeerProcess(peer, options.peers, description, threads, options.cpu)
            )
            engines.append(engine)
            try:
                if isinstance(engine, PeerProcess) and (peer, name) not in options.proven:
                    engine.prove_training()
                    options.proven.add((peer, name))
                engine.turn(0.0)
            except InvalidEngine as error:
                rejected.append(str(error))
                engines.remove(engine)
                engine.close()
        results = time_engines(engines, options.rounds, options.seconds, options.patience)
    finally:
        for engine in engines:
            engine.close()
    return Comparison(
        name,
        batch,
        threads,
        {peer: times.fastest_ms for peer, times in results.items()},
        {peer: times.median_ms for peer, times in results.items()},
        max(min(times.busy) for times in results.values()),
        tuple(rejected),
    )


def table_row(row: Comparison) -> str:
    """Format one row of the table."""
    times = " ".join(f"{row.fastest_ms.get(peer, float('nan')):9.2f}" for peer in ("ours", *PEERS))
    ratios = []
    for peer in PEERS:
        ratio = row.ratio(peer)
        ratios.append("        -" if ratio is None else f"{ratio:8.2f}x")
    star = "*" if row.busy > QUIET_SHARE else " "
    return f"{row.model:<16} {row.batch:>3} {row.threads:>3} {times} {' '.join(ratios)} {star}"


def summary(rows: list[Comparison]) -> Iterator[str]:
    """Yield the mean and the worst ratio per peer and number of threads."""
    for peer in PEERS:
        for threads in sorted({row.threads for row in rows}):
            ratios = [
                (ratio, row)
                for row in rows
                if row.threads == threads and (ratio := row.ratio(peer)) is not None
            ]
            if ratios:
                mean = geometric_mean([ratio for ratio, _ in ratios])
                worst, row = min(ratios, key=lambda pair: pair[0])
                case = f"{row.model}, batch {row.batch}"
                text = f"{mean:.2f}x {peer} in geometric mean, worst {worst:.2f}x ({case})"
                yield f"{threads} thread{'s' * (threads > 1)}: {text}"


def main() -> None:
    """Measure all cases and print each as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three networks, batch 4")
    parser.add_argument("--models", nargs="+", choices=(*MODELS, *DECODERS))
    parser.add_argument("--batches", nargs="+", type=int, help="batch sizes")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--only", nargs="+", default=["ours", *PEERS], choices=["ours", *PEERS])
    options = parse_options(parser, seconds=1.0)
    options.proven = set()
    models = options.models or (QUICK if options.quick else (*MODELS, *DECODERS))
    batch_sizes = options.batches or ([4] if options.quick else [4, 16])
    print(f"load {load_average()}; {options.rounds} rounds of {options.seconds:g} s")
    print("fastest step in ms")
    print("model            bat thr      ours     torch       mnn    x torch     x mnn")
    rows: list[Comparison] = []
    for threads in options.threads:
        for name in models:
            for batch in batch_sizes:
                rows.append(measure(name, batch, threads, options))
                print(table_row(rows[-1]), flush=True)
                for text in rows[-1].rejected:
                    print(f"    does not count: {text}", flush=True)
    print(*summary(rows), sep="\n")
    print(f"load {load_average()}")
    if options.json:
        options.json.write_text(json.dumps([as_json(row) for row in rows], indent=1) + "\n")


def as_json(row: Comparison) -> dict[str, Any]:
    """Return a row with its ratios."""
    return {**vars(row), "ratios": {peer: row.ratio(peer) for peer in PEERS}}


if __name__ == "__main__":
    sys.exit(main())
