"""`farm kernels`: the OpenCL kernels on a device of this computer: list, check, bench, train, tune.

Figures of OpenCL on a processor say nothing of phones, and every table says so.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workloads.fault import Refused

if TYPE_CHECKING:
    from kernels.harness.device import Device
    from kernels.tuning import Shape

WRONG = 5  # exit code: finished with failures

device_option = click.option("--device", metavar="NUMBER|TEXT", help="Which device; see list.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.group()
def kernels() -> None:
    """Check, time and tune the OpenCL kernels on this computer."""


@kernels.command("list")
@json_option
def list_kernels(as_json: bool) -> None:
    """List the devices, and the ways to multiply.

    Where there is no device the list is empty, with a sentence that says so, and the exit code 0:
    that is the answer. Commands that need a device end with 2 there.
    """
    _need_opencl()
    from dataclasses import asdict

    from kernels.harness.device import NO_DEVICE, all_devices
    from kernels.harness.products import WAYS

    found = [device.facts for device in all_devices()]
    if as_json:
        ways = {name: way.text for name, way in WAYS.items()}
        click.echo(json.dumps({"devices": [asdict(facts) for facts in found], "sgemm": ways}))
        return
    for at, facts in enumerate(found):
        click.echo(f"{at}  {facts.label}: {facts.units} units, {facts.global_bytes >> 20} MB")
    if not found:
        click.echo(NO_DEVICE, err=True)
    for name, way in WAYS.items():
        click.echo(f"sgemm {name:<13} {way.text}")


@kernels.command()
@device_option
@click.option("--seed", default=0, show_default=True, help="Of shapes and values.")
@click.option("--extra", default=4, show_default=True, help="Random shapes beside the fixed ones.")
@json_option
def check(device: str | None, seed: int, extra: int, as_json: bool) -> None:
    """Compare every kernel with numpy, over ragged shapes and all transposes."""
    chosen = choose(device)
    from kernels.harness.check import check as check_one
    from kernels.harness.check import shapes, ways_for
    from kernels.harness.operations import trials
    from kernels.harness.trial import TOLERANCE, run_trial

    work = [(way, shape) for way in ways_for(chosen) for shape in shapes(seed, extra)]
    tried = list(trials(seed))
    worst: dict[str, float] = {}
    wrong: list[str] = []
    with click.progressbar(length=len(work) + len(tried), label="checking", file=sys.stderr) as bar:
        for way, shape in work:
            one = check_one(chosen, way, shape, seed)
            name = f"sgemm {one.way}"
            worst[name] = max(one.error, worst.get(name, 0.0))
            wrong += [] if one.right else [f"{name} {shape.label}: error {one.error:.1e}"]
            bar.update(1)
        for trial in tried:
            error = run_trial(chosen, trial)
            worst[trial.name] = max(error, worst.get(trial.name, 0.0))
            wrong += [] if error <= TOLERANCE else [f"{trial.name}: error {error:.1e}"]
            bar.update(1)
    if as_json:
        said = {"device": chosen.facts.label, "checked": len(work) + len(tried)}
        click.echo(json.dumps(said | {"wrong": wrong, "worst_error": worst}))
    else:
        for name, error in worst.items():
            click.echo(f"{name:<32} largest error {error:.1e}")
        for sentence in wrong:
            click.echo(f"wrong: {sentence}")
        click.echo(
            f"{len(work) + len(tried)} launches checked on {chosen.facts.label}, {len(wrong)} wrong"
        )
    if wrong:
        raise click.exceptions.Exit(WRONG)


@kernels.command()
@device_option
@click.option("--sizes", default="32:512:32", show_default=True, help="FROM:TO:STEP, or N,N,...")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option(
    "--launches",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="At least so many before each wait; the study had 500.",
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the roofline as SVG.",
)
@click.option(
    "--tuned",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A tuning file of this device: one more column.",
)
@json_option
def bench(
    device: str | None,
    sizes: str,
    rounds: int,
    launches: int,
    picture: Path | None,
    tuned: Path | None,
    as_json: bool,
) -> None:
    """Time every way to multiply, beside numpy: the study's table on this device.

    All sizes take some minutes; '--sizes 128,256,512' is enough for a look.
    """
    chosen = choose(device)
    from kernels.harness.bench import bench as bench_all
    from kernels.harness.tune import owner_of
    from kernels.tuning import read_tuned

    wanted = read_sizes(sizes)
    found = [] if tuned is None else read_tuned(tuned, owner_of(chosen))
    with click.progressbar(length=len(wanted), label="timing", file=sys.stderr) as bar:
        rows = bench_all(chosen, wanted, rounds, launches, found, lambda: bar.update(1))
    if picture is not None:
        from kernels.harness.roofline import roofline_svg
        from kernels.harness.timing import roofs_of

        picture.write_text(roofline_svg(rows, roofs_of(chosen), f"SGEMM on {chosen.facts.name}"))
        click.echo(f"wrote {picture}", err=True)
    from kernels.harness import tables

    if as_json:
        click.echo(json.dumps(tables.bench_as_json(chosen.facts, rows)))
    else:
        click.echo("\n".join(tables.bench_table(chosen.facts, rows)))


@kernels.command()
@device_option
@click.option(
    "--models",
    default="mlp-1,mlp-2,mlp-3,mlp-4,lenet",
    show_default=True,
    help="Of the study: mlp-1 to mlp-4; beyond it: lenet, squeezenet (minutes).",
)
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(2, 100))
@json_option
def train(device: str | None, models: str, rounds: int, as_json: bool) -> None:
    """Train on the device, fed in five ways, beside the CPU; the study's models first."""
    chosen = choose(device)
    from kernels.harness import tables
    from kernels.harness.network_train import NETWORKS, train_network
    from kernels.harness.train import crossings, train_all
    from workloads.models.perceptrons import WIDTHS

    wanted = models.split(",")
    known = [*WIDTHS, *NETWORKS]
    if unknown := [name for name in wanted if name not in known]:
        raise Refused(f"--models: there is no '{unknown[0]}'; there are {', '.join(known)}")
    with click.progressbar(length=rounds * len(wanted), label="training", file=sys.stderr) as bar:
        names = [name for name in wanted if name in WIDTHS]
        rows = train_all(chosen, names, rounds, (1, 2), lambda: bar.update(1))
        nets = [
            train_network(chosen, name, rounds, lambda: bar.update(1))
            for name in wanted
            if name in NETWORKS
        ]
    crossed = crossings(chosen)
    if as_json:
        click.echo(json.dumps(tables.training_as_json(chosen.facts, rows, nets, crossed)))
    else:
        click.echo("\n".join(tables.training_table(chosen.facts, rows, nets, crossed)))
    wrong = [row.name for row in rows if not all(way.right for way in row.ways.values())]
    if wrong := [*wrong, *(net.name for net in nets if not net.right)]:
        click.echo(f"wrong: {', '.join(wrong)} did not train as the reference does", err=True)
        raise click.exceptions.Exit(WRONG)


sizes_option = click.option(
    "--sizes", default="64,128,256,512", show_default=True, help="FROM:TO:STEP, or N,N,..."
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
    "--transposes", default="NN,NT,TN", show_default=True, help="As training has them, or TT."
)
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(1, 3600))
@click.option("--again", is_flag=True, help="Do not take what was found before.")
@output_option
@json_option
def tune(
    device: str | None,
    sizes: str,
    transposes: str,
    seconds: float,
    again: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find the fastest way and its numbers for each size, and keep them."""
    chosen = choose(device)
    from kernels.harness.tables import tuned_as_json, tuned_table
    from kernels.harness.tune import owner_of, tune_all
    from kernels.tuning import tuned_text

    shapes = read_shapes(sizes, transposes)
    with click.progressbar(length=int(seconds), label="tuning", file=sys.stderr) as bar:
        began = time.monotonic()

        def step(_: int) -> None:
            bar.update(int(time.monotonic() - began) - bar.pos)

        found = tune_all(chosen, shapes, seconds, _cache_home(), again, step)
    if output is not None:
        output.write_text(tuned_text(owner_of(chosen), found))
    if as_json:
        click.echo(json.dumps(tuned_as_json(chosen.facts, found)))
    else:
        click.echo("\n".join(tuned_table(chosen.facts, found)))


def read_shapes(sizes: str, transposes: str) -> "list[Shape]":
    """Square products of these sizes, in each of these transposes."""
    from kernels.tuning import Shape

    turns = transposes.upper().split(",")
    if not set(turns) <= {"NN", "NT", "TN", "TT"}:
        raise Refused(f"--transposes: '{transposes}' has something else than NN, NT, TN or TT")
    return [
        Shape(n, n, n, turn[0] == "T", turn[1] == "T") for n in read_sizes(sizes) for turn in turns
    ]


def _cache_home() -> Path:
    """Where the farm keeps what can be found again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farmhand"


def read_sizes(text: str) -> list[int]:
    """Read '32:512:32' or '64,128'; sizes are from 1 to 8192."""
    try:
        if ":" in text:
            first, last, step = (int(word) for word in text.split(":"))
            sizes = list(range(first, last + 1, step))
        else:
            sizes = [int(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1 or max(sizes) > 8192:
        raise Refused(f"--sizes: '{text}' is neither FROM:TO:STEP nor N,N,... within 1 to 8192")
    return sizes


def choose(device: str | None) -> "Device":
    """The device that is meant, or in one sentence why there is none."""
    _need_opencl()
    from kernels.harness.device import choose_device

    return choose_device(device)


def _need_opencl() -> None:
    try:
        import kernels.harness.device  # noqa: F401
    except ImportError:
        raise Refused(
            "OpenCL is not installed: start with './farm kernels', which brings it, or "
            "'pip install farmhand[kernels]'"
        ) from None
