"""`farm kernels`: lists, checks, benchmarks, trains and tunes OpenCL kernels on this computer.

OpenCL times on a CPU do not predict those of a phone's GPU; every table states this.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workloads.cli_options import SEED, DurationUpTo, value_option
from workloads.protocol.base import digest_of
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from kernels.autotuner import MatmulShape
    from kernels.harness.kernel_check import CheckedLaunch
    from kernels.harness.matmul_bench import VariantTime
    from kernels.harness.opencl_device import Device

INTERRUPTED = 130  # exit status after Ctrl-C
NOT_A_PHONE = "Measured on this computer; this does not predict a phone's GPU."
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
    from kernels.harness.matmul_bench import TUNER_ONLY, VARIANTS
    from kernels.harness.opencl_device import NO_DEVICE, all_devices

    devices = [device.facts for device in all_devices()]
    if as_json:
        click.echo(json.dumps({"devices": [asdict(facts) for facts in devices], "sgemm": VARIANTS}))
        return
    for number, facts in enumerate(devices):
        click.echo(f"{number}  {facts.label}: {facts.units} units, {facts.global_bytes >> 20} MB")
    if not devices:
        click.echo(NO_DEVICE, err=True)
    for name, text in VARIANTS.items():
        note = " (tuner only)" if name in TUNER_ONLY else ""
        click.echo(f"sgemm {name:<13} {text}{note}")


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
    """Compare every kernel with references in double precision.

    Shapes are ragged, and products are checked in all transposes. With --json, the limits of every
    kernel that was built are included. Exits with 5 if a kernel is wrong.

    \b
    Examples:
      farm kernels check
      farm kernels check --device 0 --random-shapes 0
    """
    chosen = choose(device)
    launches, programs = _run_checks(chosen, seed, random_shapes)
    worst: dict[str, float] = {}
    for one in launches:
        worst[one.name] = max(one.error, worst.get(one.name, 0.0))
    wrong = [f"{one.label}: error {one.error:.1e}" for one in launches if not one.passed]
    if as_json:
        result = {"device": chosen.facts.label, "checked": len(launches), "wrong": wrong}
        click.echo(json.dumps(result | {"worst_error": worst, "programs": programs}))
    else:
        for name, error in worst.items():
            click.echo(f"{name:<32} largest error {error:.1e}")
        for sentence in wrong:
            click.echo(f"wrong: {sentence}")
        click.echo(f"{len(launches)} launches checked on {chosen.facts.label}, {len(wrong)} wrong")
    if wrong:
        raise click.exceptions.Exit(FAILED)


def _run_checks(
    device: "Device", seed: int, random_shapes: int
) -> "tuple[list[CheckedLaunch], list[dict[str, object]]]":
    """Return the error of every launch, and the programs with the limits of their kernels."""
    from kernels.harness import kernel_check
    from kernels.harness.local_runner import open_runner

    launches: list[CheckedLaunch] = []
    built: dict[tuple[str, str], str] = {}
    shapes = list(kernel_check.check_shapes(seed, random_shapes))
    bodies = kernel_check.covering_workloads()
    length = len(shapes) + len(bodies)
    with (
        open_runner(device.facts.identity) as runner,
        click.progressbar(length=length, label="checking", file=sys.stderr) as bar,
    ):
        for shape in shapes:
            checked, records = kernel_check.check_products(runner, shape)
            launches += checked
            built |= {(r["files"], r["options"]): r["digest"] for r in records if "files" in r}
            bar.update(1)
        for name, body in bodies.items():
            checked, programs = kernel_check.check_training(runner, name, body)
            launches += checked
            built |= {(r["files"], r["options"]): r["digest"] for r in programs}
            bar.update(1)
    inspected: list[dict[str, object]] = [
        {
            "files": files,
            "options": options,
            "digest": digest,
            "kernels": [asdict(kernel) for kernel in device.inspect_files(files, options)],
        }
        for (files, options), digest in built.items()
    ]
    return launches, inspected


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
    tuned: Path | None,
    as_json: bool,
) -> None:
    """Time all matmul variants.

    The table says what each kernel was built from. All sizes take some minutes.

    \b
    Examples:
      farm kernels bench --sizes 128,256,512
      farm kernels bench --sizes 256 --tuned phone.tuned
    """
    chosen = choose(device)
    from kernels.autotuner import MatmulShape, nearest, read_tuned
    from kernels.harness.local_runner import open_runner
    from kernels.harness.matmul_bench import VARIANTS, bench_as_json, bench_table, time_products

    wanted = read_sizes(sizes)
    winners = [] if tuned is None else read_tuned(tuned, chosen.facts.identity)
    rows: dict[MatmulShape, dict[str, VariantTime]] = {}
    interrupted = False
    with (
        open_runner(chosen.facts.identity) as runner,
        click.progressbar(wanted, label="timing", file=sys.stderr) as bar,
    ):
        try:
            for n in bar:
                shape = MatmulShape(n, n, n)
                best = nearest(winners, shape)
                contenders = {name: name for name in VARIANTS}
                contenders |= {"tuned": best.label} if best else {}
                rows[shape] = time_products(runner, shape, contenders, rounds, launches)
        except KeyboardInterrupt:  # what was measured until now is printed
            interrupted = True
    if not rows:
        raise click.Abort
    found = [bench_as_json(shape, times) for shape, times in rows.items()]
    _print_result(chosen, as_json, {"rows": found}, bench_table(rows))
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

    Exits with 5 if a model does not train like the CPU.

    \b
    Examples:
      farm kernels train --models mlp-1,mlp-4
      farm kernels train --models lenet --json
    """
    chosen = choose(device)
    from kernels.harness.local_runner import NAME, open_runner
    from kernels.harness.training_bench import MODELS, TABLE_HEAD, train_model

    wanted = models.split(",")
    if unknown := [name for name in wanted if name not in MODELS]:
        names = ", ".join(MODELS)
        raise InvalidRequest(f"--models: '{unknown[0]}' is not a model; choose from {names}")
    with (
        open_runner(chosen.facts.identity) as runner,
        click.progressbar(length=rounds * len(wanted), label="training", file=sys.stderr) as bar,
    ):
        trained = [train_model(runner, name, rounds, lambda: bar.update(1)) for name in wanted]
    lines = [TABLE_HEAD, *(line for model in trained for line in model.table_lines())]
    lines.append(f"us, fastest of all turns. The CPU is {NAME} on one thread.")
    found = [model.as_json() for model in trained]
    _print_result(chosen, as_json, {"cpu": NAME, "models": found}, lines)
    if wrong := [model.name for model in trained if not model.passed]:
        click.echo(f"wrong: {', '.join(wrong)} did not train like the CPU", err=True)
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
    "--for",
    "seconds",
    default="60s",
    show_default=True,
    type=DurationUpTo(3600),
    help="Stop searching after this time.",
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
      farm kernels tune --for 5m --output phone.tuned
    """
    chosen = choose(device)
    from kernels.autotuner import OpenCLLimits, kernels_digest, tuned_text
    from kernels.harness.local_runner import open_runner
    from kernels.tuning_run import SearchTime, read_known, tune_missing

    shapes, owner = read_shapes(sizes, transposes), chosen.facts.identity
    key = digest_of({"device": asdict(owner), "kernels": kernels_digest()})
    cache = _cache_home() / "tuned" / f"{key[:16]}.tuned"
    winners = {} if retune else read_known(cache, owner)
    limits = OpenCLLimits(chosen.facts.local_bytes, chosen.facts.max_group)
    missing = [shape for shape in shapes if shape not in winners]
    with (
        open_runner(owner) as runner,
        click.progressbar(length=len(missing), label="tuning", file=sys.stderr) as bar,
    ):
        for winner in tune_missing(shapes, winners, limits, runner.tune, SearchTime(seconds)):
            winners[winner.shape] = winner
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(tuned_text(owner, list(winners.values())))
            bar.update(1)
    chosen_winners = [winners[shape] for shape in shapes]
    if output is not None:
        output.write_text(tuned_text(owner, chosen_winners))
    found = [
        asdict(one.shape)
        | {"variant": one.candidate.variant, "params": dict(one.candidate.params)}
        | {"gflops": one.gflops, "tried": one.tried}
        for one in chosen_winners
    ]
    lines = [
        f"{one.shape.label}: {one.candidate.label}: {one.gflops:.1f} GFLOPS, best of {one.tried}"
        for one in chosen_winners
    ]
    _print_result(chosen, as_json, {"sgemm": found}, lines)


def _print_result(
    device: "Device", as_json: bool, found: Mapping[str, object], lines: Iterable[str]
) -> None:
    """Print what was measured, as one JSON object or as a table, with the device and a warning."""
    if as_json:
        head = {"device": asdict(device.facts), "source": "host", "note": NOT_A_PHONE}
        click.echo(json.dumps(head | dict(found)))
    else:
        click.echo("\n".join([*lines, f"{device.facts.label}. {NOT_A_PHONE}"]))


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
