"""`farm kernels`: lists, checks, benchmarks, trains and tunes OpenCL kernels on this computer.

OpenCL times on a CPU do not predict those of a phone's GPU; every table states this.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workloads.cli_options import SEED, FiniteRange, value_option
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from kernels.autotuner import MatmulShape
    from kernels.harness.matmul_bench import MatmulRow
    from kernels.harness.opencl_device import Device

INTERRUPTED = 130  # exit status after Ctrl-C
FAILED = 5  # exit status: the command finished, and some results are wrong

device_option = click.option(
    "--device", metavar="NUMBER|TEXT", help="Use this device; see 'farm kernels list'."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def kernels() -> None:
    """Check, time and tune the OpenCL kernels on this computer.

    \b
    Examples:
      farm kernels list
      farm kernels check --device 0
    """


@kernels.command("list")
@json_option
def list_kernels(as_json: bool) -> None:
    """List OpenCL devices and matmul variants.

    Without a device the list is empty and the exit status 0; commands that need a device exit
    with 2.

    \b
    Examples:
      farm kernels list
      farm kernels list --json
    """
    _require_opencl()
    from dataclasses import asdict

    from kernels.harness.matmul_variants import TUNER_ONLY, VARIANTS
    from kernels.harness.opencl_device import NO_DEVICE, all_devices

    devices = [device.facts for device in all_devices()]
    if as_json:
        variants = {name: variant.text for name, variant in VARIANTS.items()}
        click.echo(json.dumps({"devices": [asdict(facts) for facts in devices], "sgemm": variants}))
        return
    for number, facts in enumerate(devices):
        click.echo(f"{number}  {facts.label}: {facts.units} units, {facts.global_bytes >> 20} MB")
    if not devices:
        click.echo(NO_DEVICE, err=True)
    for name, variant in VARIANTS.items():
        note = " (tuner only)" if name in TUNER_ONLY else ""
        click.echo(f"sgemm {name:<13} {variant.text}{note}")


@kernels.command()
@device_option
@value_option("--seed", type=SEED, default=0, help="Random seed for shapes and values.")
@click.option(
    "--random-shapes",
    type=click.IntRange(0, 1000),
    default=4,
    show_default=True,
    help="Check this many random shapes besides the fixed ones.",
)
@json_option
def check(device: str | None, seed: int, random_shapes: int, as_json: bool) -> None:
    """Compare every kernel with numpy.

    Shapes are ragged, and products are checked in all transposes. Exits with 5 if a kernel is
    wrong.

    \b
    Examples:
      farm kernels check
      farm kernels check --device Oclgrind --random-shapes 0
    """
    chosen = choose(device)
    worst: dict[str, float] = {}
    wrong: list[str] = []
    checked = 0
    for name, label, error, passed in _run_checks(chosen, seed, random_shapes):
        checked += 1
        worst[name] = max(error, worst.get(name, 0.0))
        wrong += [] if passed else [f"{label}: error {error:.1e}"]
    if as_json:
        result = {"device": chosen.facts.label, "checked": checked}
        click.echo(json.dumps(result | {"wrong": wrong, "worst_error": worst}))
    else:
        for name, error in worst.items():
            click.echo(f"{name:<32} largest error {error:.1e}")
        for sentence in wrong:
            click.echo(f"wrong: {sentence}")
        click.echo(f"{checked} launches checked on {chosen.facts.label}, {len(wrong)} wrong")
    if wrong:
        raise click.exceptions.Exit(FAILED)


def _run_checks(
    device: "Device", seed: int, random_shapes: int
) -> list[tuple[str, str, float, bool]]:
    """Return name, label, error and success of every launch."""
    from kernels.harness.kernel_check import TOLERANCE, run_check
    from kernels.harness.matmul_check import (
        BATCH_SHAPES,
        check_batch,
        check_matmul,
        check_shapes,
        variants_for,
    )
    from kernels.harness.training_checks import training_checks

    shapes = list(check_shapes(seed, random_shapes))
    variants = variants_for(device)
    products = [(check_matmul, variant, shape) for variant in variants for shape in shapes]
    products += [
        (check_batch, variant, shape)
        for variant in variants
        for shape in BATCH_SHAPES
        if variant.batched
    ]
    checks = list(training_checks(seed))
    results = []
    total = len(products) + len(checks)
    with click.progressbar(length=total, label="checking", file=sys.stderr) as bar:
        for check_product, variant, shape in products:
            result = check_product(device, variant, shape, seed)
            name = f"sgemm {result.variant}"
            results.append((name, f"{name} {shape.label}", result.error, result.passed))
            bar.update(1)
        for one in checks:
            error = run_check(device, one)
            results.append((one.name, one.name, error, error <= TOLERANCE))
            bar.update(1)
    return results


@kernels.command()
@device_option
@click.option(
    "--sizes",
    default="32:512:32",
    show_default=True,
    help="Time square products of these sizes: FROM:TO:STEP, or N,N,...",
)
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Give every variant this many turns.",
)
@click.option(
    "--launches",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Minimum number of launches per turn; the study used 500.",
)
@click.option(
    "--roofline",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write a roofline plot to this SVG file.",
)
@click.option(
    "--tuned",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Add a column for this tuning file.",
)
@json_option
def bench(
    device: str | None,
    sizes: str,
    rounds: int,
    launches: int,
    roofline: Path | None,
    tuned: Path | None,
    as_json: bool,
) -> None:
    """Time all matmul variants next to numpy.

    The table has the study's figures next to those of this device. All sizes take some minutes.

    \b
    Examples:
      farm kernels bench --sizes 128,256,512
      farm kernels bench --sizes 256 --roofline roofline.svg
    """
    chosen = choose(device)
    from kernels.autotuner import read_tuned
    from kernels.harness import result_tables
    from kernels.harness.device_tuning import owner_of
    from kernels.harness.matmul_bench import bench_matmul

    wanted = read_sizes(sizes)
    winners = [] if tuned is None else read_tuned(tuned, owner_of(chosen))
    rows: list[MatmulRow] = []
    interrupted = False
    with click.progressbar(wanted, label="timing", file=sys.stderr) as bar:
        try:
            for size in bar:
                rows += bench_matmul(chosen, [size], rounds, launches, winners)
        except KeyboardInterrupt:  # what was measured until now is printed
            interrupted = True
    if not rows:
        raise click.Abort
    if roofline is not None:
        from kernels.harness.launch_timing import measure_peaks
        from kernels.harness.roofline_plot import roofline_svg

        title = f"SGEMM on {chosen.facts.name}"
        roofline.write_text(roofline_svg(rows, measure_peaks(chosen), title))
        click.echo(f"wrote {roofline}", err=True)
    if as_json:
        click.echo(json.dumps(result_tables.bench_as_json(chosen.facts, rows)))
    else:
        click.echo("\n".join(result_tables.bench_table(chosen.facts, rows)))
    if interrupted:
        click.echo(f"interrupted after {len(rows)} of {len(wanted)} sizes", err=True)
        raise click.exceptions.Exit(INTERRUPTED)


@kernels.command()
@device_option
@click.option(
    "--models",
    default="mlp-1,mlp-2,mlp-3,mlp-4,lenet",
    show_default=True,
    help="Train these models: mlp-1 to mlp-4 (the study's), lenet, squeezenet (minutes).",
)
@click.option(
    "--rounds",
    default=10,
    show_default=True,
    type=click.IntRange(2, 100),
    help="Give every feed this many turns.",
)
@json_option
def train(device: str | None, models: str, rounds: int, as_json: bool) -> None:
    """Train with every feed of the device, and on the CPU.

    Exits with 5 if a model does not train like the reference.

    \b
    Examples:
      farm kernels train --models mlp-1,mlp-4
      farm kernels train --models lenet --json
    """
    chosen = choose(device)
    from kernels.harness import result_tables
    from kernels.harness.network_training import NETWORKS, train_network
    from kernels.harness.perceptron_training import time_transfers, train_perceptrons
    from workloads.models.perceptrons import WIDTHS

    wanted = models.split(",")
    known = [*WIDTHS, *NETWORKS]
    if unknown := [name for name in wanted if name not in known]:
        names = ", ".join(known)
        raise InvalidRequest(f"--models: '{unknown[0]}' is not a model; choose from {names}")
    with click.progressbar(length=rounds * len(wanted), label="training", file=sys.stderr) as bar:
        selected = [name for name in wanted if name in WIDTHS]
        perceptrons = train_perceptrons(chosen, selected, rounds, (1, 2), lambda: bar.update(1))
        networks = [
            train_network(chosen, name, rounds, lambda: bar.update(1))
            for name in wanted
            if name in NETWORKS
        ]
    results = (chosen.facts, perceptrons, networks, time_transfers(chosen))
    if as_json:
        click.echo(json.dumps(result_tables.training_as_json(*results)))
    else:
        click.echo("\n".join(result_tables.training_table(*results)))
    wrong = [row.name for row in perceptrons if not all(m.passed for m in row.feeds.values())]
    if wrong := [*wrong, *(net.name for net in networks if not net.passed)]:
        click.echo(f"wrong: {', '.join(wrong)} did not train like the reference", err=True)
        raise click.exceptions.Exit(FAILED)


sizes_option = click.option(
    "--sizes",
    default="64,128,256,512",
    show_default=True,
    help="Tune square products of these sizes: FROM:TO:STEP, or N,N,...",
)
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the tuning file here as well.",
)


@kernels.command()
@device_option
@sizes_option
@click.option(
    "--transposes",
    default="NN,NT,TN",
    show_default=True,
    help="Tune these transposes; training uses NN, NT and TN.",
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=FiniteRange(1, 3600),
    help="Stop searching after this many seconds.",
)
@click.option("--retune", is_flag=True, help="Ignore cached results.")
@output_option
@json_option
def tune(
    device: str | None,
    sizes: str,
    transposes: str,
    seconds: float,
    retune: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find the fastest matmul variant and parameters per size, and cache them.

    \b
    Examples:
      farm kernels tune --sizes 64,256
      farm kernels tune --seconds 300 --output phone.tuned
    """
    chosen = choose(device)
    from kernels.autotuner import tuned_text
    from kernels.harness.device_tuning import owner_of, tune_all
    from kernels.harness.result_tables import tuned_as_json, tuned_table

    shapes = read_shapes(sizes, transposes)
    with click.progressbar(length=int(seconds), label="tuning", file=sys.stderr) as bar:
        start = time.monotonic()

        def show_progress(_: int) -> None:
            bar.update(int(time.monotonic() - start) - bar.pos)

        winners = tune_all(chosen, shapes, seconds, _cache_home(), retune, show_progress)
    if output is not None:
        output.write_text(tuned_text(owner_of(chosen), winners))
    if as_json:
        click.echo(json.dumps(tuned_as_json(chosen.facts, winners)))
    else:
        click.echo("\n".join(tuned_table(chosen.facts, winners)))


def read_shapes(sizes: str, transposes: str) -> "list[MatmulShape]":
    """Parse --sizes and --transposes into square products."""
    from kernels.autotuner import MatmulShape

    letters = transposes.upper().split(",")
    if not set(letters) <= {"NN", "NT", "TN", "TT"}:
        raise InvalidRequest(f"--transposes: '{transposes}' is not a list of NN, NT, TN and TT")
    return [
        MatmulShape(n, n, n, pair[0] == "T", pair[1] == "T")
        for n in read_sizes(sizes)
        for pair in letters
    ]


def _cache_home() -> Path:
    """Return the folder of data that can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farmhand"


def read_sizes(text: str) -> list[int]:
    """Parse '32:512:32' or '64,128'; sizes are from 1 to 8192."""
    try:
        if ":" in text:
            first, last, step = (int(word) for word in text.split(":"))
            sizes = list(range(first, last + 1, step))
        else:
            sizes = [int(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1 or max(sizes) > 8192:
        raise InvalidRequest(
            f"--sizes: '{text}' is neither FROM:TO:STEP nor N,N,... within 1 to 8192"
        )
    return sizes


def choose(device: str | None) -> "Device":
    """Choose a device, or explain why there is none."""
    _require_opencl()
    from kernels.harness.opencl_device import choose_device

    return choose_device(device)


def _require_opencl() -> None:
    try:
        import kernels.harness.opencl_device  # noqa: F401
    except ImportError:
        raise InvalidRequest(
            "OpenCL is not installed; run './farm kernels', which installs it, or "
            "'pip install farmhand[kernels]'"
        ) from None
