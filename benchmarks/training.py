"""A training step of ours beside PyTorch's and MNN's: same network, batch, optimizer and threads.

.venv/bin/python -m benchmarks.training --install      makes an environment with both, once
.venv/bin/python -m benchmarks.training [--quick] [--json FILE]

Engines take turns in one run. A network is described once, by the farm's own definition, and built
from that in each engine, with the same number of parameters and the same kind of first values. No
time counts before the loss has fallen and every learned tensor has moved. The ratio is the peer's
time by ours: above 1, ours is faster. A star marks a row that was taken on a busy machine; there,
--cpu compares processor time, summed over threads, which others disturb less.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.peers.contest import (
    QUIET_SHARE,
    Dishonest,
    Engine,
    Ours,
    PeerProcess,
    geometric_mean,
    load,
    read_words,
    take_turns,
)
from benchmarks.peers.describe import described
from workloads.catalogue import bind, step_of
from workloads.graph import Model
from workloads.layers import ReLU, Tanh
from workloads.training import Training

MODELS = ("lenet", "resnet20", "squeezenet", "mobilenetv2", "alexnet", "googlenet")
QUICK = ("lenet", "resnet20", "squeezenet")
PEERS = ("torch", "mnn")


@dataclass(frozen=True)
class Row:
    """One network, one batch, one number of threads."""

    model: str
    batch: int
    threads: int
    best_ms: dict[str, float]
    middle_ms: dict[str, float]
    busy: float
    refused: tuple[str, ...] = ()

    def ratio(self, peer: str) -> float | None:
        """How many times faster ours is."""
        if peer not in self.best_ms or "ours" not in self.best_ms:
            return None
        return self.best_ms[peer] / self.best_ms["ours"]


def step_for(name: str, batch: int) -> Training:
    """A step that all three can do.

    MNN 3.6.1 passes no gradient through tanh: of LeNet-5 it trains the last layer alone. So LeNet
    has ReLU here, for everybody.
    """
    step = step_of(bind(name, {"batch_size": batch}))
    assert isinstance(step, Training)
    (only,) = step.passes
    nodes = tuple(
        replace(node, layer=ReLU()) if isinstance(node.layer, Tanh) else node
        for node in only.model.nodes
    )
    plain = only.model
    model = Model(plain.name, plain.inputs, nodes, plain.stated, plain.data)
    return replace(step, passes=(replace(only, model=model),))


def measure(name: str, batch: int, threads: int, asked: argparse.Namespace) -> Row:
    """Let all engines take their turns at one case; who has proven a network need not again."""
    step = step_for(name, batch)
    description = described(step)
    refused: list[str] = []
    engines: list[Engine] = []
    try:
        for peer in asked.only:
            engine = (
                Ours(asked.runner, step, threads, asked.cpu)
                if peer == "ours"
                else PeerProcess(peer, asked.peers, description, threads, asked.cpu)
            )
            engines.append(engine)
            try:
                if isinstance(engine, PeerProcess) and (peer, name) not in asked.proven:
                    engine.prove()
                    asked.proven.add((peer, name))
                engine.turn(0.0)
            except Dishonest as error:
                refused.append(str(error))
                engines.remove(engine)
                engine.close()
        standings = take_turns(engines, asked.rounds, asked.seconds, asked.patience)
    finally:
        for engine in engines:
            engine.close()
    return Row(
        name,
        batch,
        threads,
        {peer: standing.best_ms for peer, standing in standings.items()},
        {peer: standing.middle_ms for peer, standing in standings.items()},
        max(min(standing.busy) for standing in standings.values()),
        tuple(refused),
    )


def shown(row: Row) -> str:
    """A line of the table."""
    times = " ".join(f"{row.best_ms.get(peer, float('nan')):9.2f}" for peer in ("ours", *PEERS))
    ratios = []
    for peer in PEERS:
        ratio = row.ratio(peer)
        ratios.append("        -" if ratio is None else f"{ratio:8.2f}x")
    star = "*" if row.busy > QUIET_SHARE else " "
    return f"{row.model:<12} {row.batch:>3} {row.threads:>3} {times} {' '.join(ratios)} {star}"


def summary(rows: list[Row]) -> Iterator[str]:
    """Means and worst cases, by peer and threads."""
    for peer in PEERS:
        for threads in sorted({row.threads for row in rows}):
            found = [
                (ratio, row)
                for row in rows
                if row.threads == threads and (ratio := row.ratio(peer)) is not None
            ]
            if found:
                mean = geometric_mean([ratio for ratio, _ in found])
                worst, row = min(found, key=lambda each: each[0])
                where = f"{row.model}, batch {row.batch}"
                text = f"{mean:.2f}x {peer} in geometric mean, worst {worst:.2f}x ({where})"
                yield f"{threads} thread{'s' * (threads > 1)}: {text}"


def main() -> None:
    """Measure, and print while it goes on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--quick", action="store_true", help="three networks, batch 4")
    parser.add_argument("--models", nargs="+", choices=MODELS)
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--only", nargs="+", default=["ours", *PEERS], choices=["ours", *PEERS])
    asked = read_words(parser, seconds=1.0)
    asked.proven = set()
    models = asked.models or (QUICK if asked.quick else MODELS)
    sizes = asked.batches or ([4] if asked.quick else [4, 16])
    print(f"load {load()}; the fastest step in ms; {asked.rounds} rounds of {asked.seconds:g} s")
    print("model        bat thr      ours     torch       mnn    x torch     x mnn")
    rows: list[Row] = []
    for threads in asked.threads:
        for name in models:
            for batch in sizes:
                rows.append(measure(name, batch, threads, asked))
                print(shown(rows[-1]), flush=True)
                for text in rows[-1].refused:
                    print(f"    does not count: {text}", flush=True)
    print(*summary(rows), sep="\n")
    print(f"load {load()}")
    if asked.json:
        asked.json.write_text(json.dumps([_content(row) for row in rows], indent=1) + "\n")


def _content(row: Row) -> dict[str, Any]:
    return {**vars(row), "ratios": {peer: row.ratio(peer) for peer in PEERS}}


class _Plain(argparse.RawDescriptionHelpFormatter):
    """The docstring as it is written."""


if __name__ == "__main__":
    sys.exit(main())
