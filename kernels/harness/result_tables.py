"""The output of `farm kernels`: tables with published figures next to measured ones, and JSON.

OpenCL times on a CPU do not predict those of a phone's GPU; every table states this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from kernels.autotuner import TunedMatmul
from kernels.harness.local_runner import NAME as ENGINE
from kernels.harness.matmul_bench import MatmulRow
from kernels.harness.opencl_device import DeviceFacts
from kernels.harness.published_figures import published_figures, published_matmuls
from kernels.harness.training_bench import NETWORK_FEED, TrainedModel, growth

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
    for variant, built in rows[-1].times.items():
        yield f"{variant}: {built.files} {built.options} {built.digest}"
    yield f"{facts.label}. {NOT_A_PHONE}"


def training_as_json(facts: DeviceFacts, models: Sequence[TrainedModel]) -> dict[str, object]:
    """Return everything that was timed and checked."""
    figures = published_figures()
    return {
        "device": asdict(facts),
        "source": "host",
        "note": NOT_A_PHONE,
        "cpu": ENGINE,
        "study": figures["training"] | {"source": figures["source"]},
        "models": [
            {
                "name": model.name,
                "batch": model.batch,
                "passed": model.passed,
                "load": model.load,
                "engine_s": model.engine_s,
                "feeds": {
                    feed: asdict(turns.fastest) | {"turns_s": turns.turns_s}
                    for feed, turns in model.feeds.items()
                },
                "speedup": {feed: model.speedup(feed) for feed in model.feeds},
                "over_cpu": {feed: model.over_cpu(feed) for feed in model.feeds},
            }
            for model in models
        ],
        "growth": growth(models, NETWORK_FEED),
    }


def training_table(facts: DeviceFacts, models: Sequence[TrainedModel]) -> Iterator[str]:
    """Yield a table of feeds, compared with each other and with the CPU."""
    yield f"{'model':<11}{'feed':<11}{'us/step':>9}{'x first':>9}{'kernels':>9}{'copies':>8}"
    yield f"{'':<22}{'wall':>9}{'':>9}{'us, by events':>17}   times the CPU's, 95 %   load"
    for model in models:
        yield from _feed_lines(model)
    figures = published_figures()["training"]
    for what, factor in growth(models, NETWORK_FEED).items():
        published = figures["depth_factor" if "depth" in what else "width_factor"]
        yield f"growth with {what}: {factor:.1f} times (the study's GPU, backward: {published:g})"
    share = 100 * figures["compute_share"]
    yield (
        f"The CPU is {ENGINE} on one thread. In the study, {share:.0f} % of a step was compute "
        f"({published_figures()['source']})."
    )
    yield f"{facts.label}. {NOT_A_PHONE}"


def _feed_lines(model: TrainedModel) -> Iterator[str]:
    for feed, turns in model.feeds.items():
        ratio, low, high = model.over_cpu(feed)
        step, times = turns.fastest, turns.fastest.device_s
        yield (
            f"{model.name:<11}{feed:<11}{1e6 * step.step_s:>9.1f}{model.speedup(feed):>9.1f}"
            f"{1e6 * times['compute']:>9.1f}{1e6 * times['copy']:>8.1f}"
            f"   {ratio:>8.2f} ({low:.2f} to {high:.2f})   {model.load:.1f}"
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
