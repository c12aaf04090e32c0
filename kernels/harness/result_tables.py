"""What `farm kernels` prints of its measurements: the study's figures beside ours, and JSON.

Figures of OpenCL on a processor say nothing of phones, and every table says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median

from kernels.harness.bench import Row
from kernels.harness.device import DeviceFacts
from kernels.harness.engine import NAME as ENGINE
from kernels.harness.network_train import NetworkRow
from kernels.harness.study import figures, phones
from kernels.harness.train import Crossing, ModelRow, break_even, growth
from kernels.tuning import Tuned

NOT_A_PHONE = "Measured on this computer; it says nothing of a phone's GPU."


def bench_as_json(facts: DeviceFacts, rows: Sequence[Row]) -> dict[str, object]:
    """Everything that was timed."""
    return {
        "device": asdict(facts),
        "source": "host",
        "note": NOT_A_PHONE,
        "study": figures()["gemm"] | {"source": figures()["source"]},
        "rows": [
            {
                "n": row.shape.n,
                "load": row.load,
                "numpy_gflops": row.numpy_gflops,
                "tiled_vector_over_naive": row.study_gain,
                "best": row.best,
                "best_over_naive": row.best_gain,
                "ways": {
                    way: asdict(timed)
                    | {"gflops": row.gflops(way), "executed_gflops": row.executed_gflops(way)}
                    for way, timed in row.timed.items()
                },
            }
            for row in rows
        ],
    }


def bench_table(facts: DeviceFacts, rows: Sequence[Row]) -> Iterator[str]:
    """The study's table: its phones first, then this device."""
    source = figures()["source"]
    yield f"the study ({source}), GFLOPS by the device's clock, products up to 512"
    yield f"{'':<26}{'naive':>8}{'optimised':>11}{'ratio':>7}{'CPU':>7}"
    for phone in phones():
        yield (
            f"{phone.phone:<26}{phone.naive_gflops:>8.1f}{phone.optimised_gflops:>11.1f}"
            f"{phone.gain:>7.1f}{phone.cpu_gflops:>7.1f}"
        )
    for row in rows:
        yield (
            f"{f'this device, n = {row.shape.n}':<26}{row.executed_gflops('naive'):>8.1f}"
            f"{row.executed_gflops('tiled_vector'):>11.1f}{row.study_gain:>7.1f}"
            f"{row.numpy_gflops:>7.1f}"
        )
    yield ""
    ways = list(rows[0].timed)
    head = "".join(f"{way:>13}" for way in ways)
    yield f"   n{head}{'numpy':>8}{'best x':>8}  load"
    for row in rows:
        speeds = "".join(
            f"{row.gflops(way):>7.1f}/{row.executed_gflops(way):<5.1f}" for way in ways
        )
        best = f"{row.numpy_gflops:>8.1f}{row.best_gain:>8.1f}  {row.load:.1f}"
        yield f"{row.shape.n:>4}{speeds}{best}"
    yield "GFLOPS by wall time / by the device's clock, least of all turns; 'optimised' is"
    yield "tiled_vector, 'ratio' it over naive by wall time, 'best x' the best over naive."
    yield f"{facts.label}. {NOT_A_PHONE}"


def training_as_json(
    facts: DeviceFacts,
    rows: Sequence[ModelRow],
    nets: Sequence[NetworkRow],
    crossed: Sequence[Crossing],
) -> dict[str, object]:
    """Everything that was timed and checked."""
    return {
        "device": asdict(facts),
        "source": "host",
        "note": NOT_A_PHONE,
        "cpu": ENGINE,
        "study": figures()["training"] | {"source": figures()["source"]},
        "models": [
            asdict(row)
            | {"gain": {way: row.gain(way) for way in row.ways}}
            | {
                "over_cpu": {
                    threads: {way: row.over_cpu(way, threads) for way in row.ways}
                    for threads in row.engine_s
                }
            }
            for row in rows
        ],
        "growth": growth({row.name: row for row in rows}, "preloaded"),
        "networks": [asdict(net) for net in nets],
        "crossings": [asdict(each) for each in crossed],
        "zero_copy_pays_from_bytes": break_even(crossed),
    }


def training_table(
    facts: DeviceFacts,
    rows: Sequence[ModelRow],
    nets: Sequence[NetworkRow],
    crossed: Sequence[Crossing],
) -> Iterator[str]:
    """Ways of feeding against each other and against the CPU."""
    if rows:
        yield f"{'model':<7}{'fed':<11}{'us/step':>9}{'x copied':>9}{'kernels':>9}{'copies':>8}"
        yield f"{'':<18}{'wall':>9}{'':>9}{'us, by events':>17}   times the CPU's, 95 %   load"
    for row in rows:
        yield from _model_lines(row)
    said = figures()["training"]
    for what, factor in growth({row.name: row for row in rows}, "preloaded").items():
        claimed = said["depth_factor" if "depth" in what else "width_factor"]
        yield f"growth with {what}: {factor:.1f} times (the study's GPU, backward: {claimed:g})"
    for net in nets:
        phases = ", ".join(f"{name} {1e3 * each:.1f}" for name, each in net.phases_s.items())
        ratio = median(net.turns_s) / median(net.engine_s)
        yield (
            f"{net.name}, batch {net.batch}: {1e3 * min(net.turns_s):.1f} ms a step, "
            f"{net.launches} launches; by events {phases} ms; {ratio:.1f} times the CPU's"
        )
    pays = break_even(crossed)
    yield (
        "writing in place never beat a copy here"
        if pays is None
        else f"writing in place beats a copy from {pays >> 10} KB on"
    )
    yield (
        f"The CPU is {ENGINE} on one thread. In the study {100 * said['compute_share']:.0f} % of a "
        f"step was compute ({figures()['source']})."
    )
    yield f"{facts.label}. {NOT_A_PHONE}"


def _model_lines(row: ModelRow) -> Iterator[str]:
    for way, timed in row.ways.items():
        ratio, low, high = row.over_cpu(way, min(row.engine_s))
        yield (
            f"{row.name:<7}{way:<11}{1e6 * timed.step_s:>9.1f}{row.gain(way):>9.1f}"
            f"{1e6 * timed.kernels_s:>9.1f}{1e6 * timed.copies_s:>8.1f}"
            f"   {ratio:>8.2f} ({low:.2f} to {high:.2f})   {row.load:.1f}"
        )


def tuned_as_json(facts: DeviceFacts, found: Sequence[Tuned]) -> dict[str, object]:
    """Every winner."""
    rows = [
        asdict(tuned.shape)
        | {"way": tuned.candidate.way, "numbers": dict(tuned.candidate.numbers)}
        | {"gflops": tuned.gflops, "tried": tuned.tried}
        for tuned in found
    ]
    return {"device": asdict(facts), "source": "host", "note": NOT_A_PHONE, "sgemm": rows}


def tuned_table(facts: DeviceFacts, found: Sequence[Tuned]) -> Iterator[str]:
    """A winner a line."""
    for tuned in found:
        yield (
            f"{tuned.shape.label}: {tuned.candidate.label}: {tuned.gflops:.1f} GFLOPS, "
            f"the best of {tuned.tried}"
        )
    yield f"{facts.label}. {NOT_A_PHONE}"
