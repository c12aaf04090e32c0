"""The output of `farm kernels`: tables with published figures next to measured ones, and JSON.

OpenCL times on a CPU do not predict those of a phone's GPU; every table states this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median

from kernels.autotuner import TunedMatmul
from kernels.harness.engine_run import NAME as ENGINE
from kernels.harness.matmul_bench import MatmulRow
from kernels.harness.network_training import NetworkResult
from kernels.harness.opencl_device import DeviceFacts
from kernels.harness.perceptron_training import (
    PerceptronResult,
    TransferTime,
    break_even,
    growth,
)
from kernels.harness.published_figures import published_figures, published_matmuls

NOT_A_PHONE = "Measured on this computer; this does not predict a phone's GPU."


def bench_as_json(facts: DeviceFacts, rows: Sequence[MatmulRow]) -> dict[str, object]:
    """Return all times of a benchmark."""
    figures = published_figures()
    return {
        "device": asdict(facts),
        "source": "host",
        "note": NOT_A_PHONE,
        "study": figures["gemm"] | {"source": figures["source"]},
        "rows": [
            {
                "n": row.shape.n,
                "load": row.load,
                "numpy_gflops": row.numpy_gflops,
                "tiled_vector_over_naive": row.study_ratio,
                "fastest": row.fastest,
                "fastest_over_naive": row.best_ratio,
                "variants": {
                    variant: asdict(times)
                    | {
                        "gflops": row.gflops(variant),
                        "executed_gflops": row.executed_gflops(variant),
                    }
                    for variant, times in row.times.items()
                },
            }
            for row in rows
        ],
    }


def bench_table(facts: DeviceFacts, rows: Sequence[MatmulRow]) -> Iterator[str]:
    """Yield the study's table, its phones first, then this device."""
    source = published_figures()["source"]
    yield f"the study ({source}), GFLOPS by the clock of the device, products up to 512"
    yield f"{'':<26}{'naive':>8}{'optimised':>11}{'ratio':>7}{'CPU':>7}"
    for phone in published_matmuls():
        yield (
            f"{phone.phone:<26}{phone.naive_gflops:>8.1f}{phone.optimised_gflops:>11.1f}"
            f"{phone.ratio:>7.1f}{phone.cpu_gflops:>7.1f}"
        )
    for row in rows:
        yield (
            f"{f'this device, n = {row.shape.n}':<26}{row.executed_gflops('naive'):>8.1f}"
            f"{row.executed_gflops('tiled_vector'):>11.1f}{row.study_ratio:>7.1f}"
            f"{row.numpy_gflops:>7.1f}"
        )
    yield ""
    variants = list(rows[0].times)
    head = "".join(f"{variant:>13}" for variant in variants)
    yield f"   n{head}{'numpy':>8}{'best x':>8}  load"
    for row in rows:
        speeds = "".join(
            f"{row.gflops(variant):>7.1f}/{row.executed_gflops(variant):<5.1f}"
            for variant in variants
        )
        best = f"{row.numpy_gflops:>8.1f}{row.best_ratio:>8.1f}  {row.load:.1f}"
        yield f"{row.shape.n:>4}{speeds}{best}"
    yield "GFLOPS by wall time / by the clock of the device, fastest of all turns; 'optimised'"
    yield "is tiled_vector, 'ratio' it over naive by wall time, 'best x' the fastest over naive."
    yield f"{facts.label}. {NOT_A_PHONE}"


def training_as_json(
    facts: DeviceFacts,
    perceptrons: Sequence[PerceptronResult],
    networks: Sequence[NetworkResult],
    transfers: Sequence[TransferTime],
) -> dict[str, object]:
    """Return everything that was timed and checked."""
    figures = published_figures()
    return {
        "device": asdict(facts),
        "source": "host",
        "note": NOT_A_PHONE,
        "cpu": ENGINE,
        "study": figures["training"] | {"source": figures["source"]},
        "models": [
            asdict(row)
            | {"speedup": {feed: row.speedup(feed) for feed in row.feeds}}
            | {
                "over_cpu": {
                    threads: {feed: row.over_cpu(feed, threads) for feed in row.feeds}
                    for threads in row.engine_s
                }
            }
            for row in perceptrons
        ],
        "growth": growth({row.name: row for row in perceptrons}, "preloaded"),
        "networks": [asdict(net) for net in networks],
        "transfers": [asdict(transfer) for transfer in transfers],
        "zero_copy_pays_from_bytes": break_even(transfers),
    }


def training_table(
    facts: DeviceFacts,
    perceptrons: Sequence[PerceptronResult],
    networks: Sequence[NetworkResult],
    transfers: Sequence[TransferTime],
) -> Iterator[str]:
    """Yield a table of feeds, compared with each other and with the CPU."""
    if perceptrons:
        yield f"{'model':<7}{'feed':<11}{'us/step':>9}{'x copied':>9}{'kernels':>9}{'copies':>8}"
        yield f"{'':<18}{'wall':>9}{'':>9}{'us, by events':>17}   times the CPU's, 95 %   load"
    for row in perceptrons:
        yield from _perceptron_lines(row)
    figures = published_figures()["training"]
    for what, factor in growth({row.name: row for row in perceptrons}, "preloaded").items():
        published = figures["depth_factor" if "depth" in what else "width_factor"]
        yield f"growth with {what}: {factor:.1f} times (the study's GPU, backward: {published:g})"
    for net in networks:
        phases = ", ".join(f"{name} {1e3 * time:.1f}" for name, time in net.phases_s.items())
        ratio = median(net.turns_s) / median(net.engine_s)
        yield (
            f"{net.name}, batch {net.batch}: {1e3 * min(net.turns_s):.1f} ms per step "
            f"({phases}); {ratio:.1f} times the CPU's"
        )
    pays = break_even(transfers)
    yield (
        "writing in place was never faster than a copy"
        if pays is None
        else f"writing in place is faster than a copy from {pays >> 10} KB on"
    )
    share = 100 * figures["compute_share"]
    yield (
        f"The CPU is {ENGINE} on one thread. In the study, {share:.0f} % of a step was compute "
        f"({published_figures()['source']})."
    )
    yield f"{facts.label}. {NOT_A_PHONE}"


def _perceptron_lines(row: PerceptronResult) -> Iterator[str]:
    for feed, result in row.feeds.items():
        ratio, low, high = row.over_cpu(feed, min(row.engine_s))
        yield (
            f"{row.name:<7}{feed:<11}{1e6 * result.step_s:>9.1f}{row.speedup(feed):>9.1f}"
            f"{1e6 * result.kernels_s:>9.1f}{1e6 * result.copies_s:>8.1f}"
            f"   {ratio:>8.2f} ({low:.2f} to {high:.2f})   {row.load:.1f}"
        )


def tuned_as_json(facts: DeviceFacts, winners: Sequence[TunedMatmul]) -> dict[str, object]:
    """Return all winners."""
    rows = [
        asdict(winner.shape)
        | {"variant": winner.candidate.variant, "params": dict(winner.candidate.params)}
        | {"gflops": winner.gflops, "tried": winner.tried}
        for winner in winners
    ]
    return {"device": asdict(facts), "source": "host", "note": NOT_A_PHONE, "sgemm": rows}


def tuned_table(facts: DeviceFacts, winners: Sequence[TunedMatmul]) -> Iterator[str]:
    """Yield one line per winner."""
    for winner in winners:
        yield (
            f"{winner.shape.label}: {winner.candidate.label}: {winner.gflops:.1f} GFLOPS, "
            f"the best of {winner.tried}"
        )
    yield f"{facts.label}. {NOT_A_PHONE}"
