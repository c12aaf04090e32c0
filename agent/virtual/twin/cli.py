"""`farm virtual predict`, `curve`, `build`, `calibrate`: questions to the physical model."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workloads.cli_options import COUNT, DurationUpTo
from workloads.command_output import say, show_wait

if TYPE_CHECKING:
    from agent.virtual.twin.curve_error import CurvePoint
    from agent.virtual.twin.predict import Prediction


@click.command(name="predict")
@click.argument("phone")
@click.option("--workload", required=True, help="Workload, see 'farm workload list'.")
@click.option("--batch-size", "batch", type=COUNT, help="Samples per step.")
@click.option(
    "--cores", default="big4", show_default=True, help="Core set: big1..4, little1..4, all8."
)
@click.option("--freq", help="Clock: kHz, high, mid or low. Default: the governor's.")
@click.option(
    "--after",
    "work_s",
    default="0s",
    show_default=True,
    type=DurationUpTo(36_000, or_zero=True),
    help="Sustained work before temperatures and clock are reported.",
)
@click.option(
    "--backend",
    default="cpu",
    show_default=True,
    type=click.Choice(["cpu", "opencl"]),
    help="Compute on the CPU, or on the GPU with OpenCL.",
)
@click.option(
    "--kernel", default="tuned", show_default=True, help="Variant of the matrix product on the GPU."
)
@click.option("--feed", default="resident", show_default=True, help="How batches reach the GPU.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def predict_command(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    phone: str,
    workload: str,
    batch: int | None,
    cores: str,
    freq: str | None,
    work_s: float,
    backend: str,
    kernel: str,
    feed: str,
    as_json: bool,
) -> None:
    """Predict the results of a workload on PHONE.

    The prediction comes from the physical model; nothing is run.

    \b
    Examples:
      farm virtual predict meizu-16t --workload emdl-alexnet --batch-size 16
      farm virtual predict oneplus-6 --workload mlp-2 --backend opencl --feed copied --json
    """
    from agent.virtual.phone_specs import check_profile
    from agent.virtual.twin.predict import PredictionQuery, predict

    try:
        query = PredictionQuery(workload, batch, cores, freq, work_s / 60, backend, kernel, feed)
        prediction = predict(check_profile(phone), query)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(prediction.as_json()))
    else:
        _print_prediction(prediction)


def _print_prediction(prediction: "Prediction") -> None:
    click.echo(
        f"{prediction.step_ms:.4g} ms per step, {prediction.power_w:.2f} W "
        f"({prediction.power_basis}), {prediction.energy_j_per_step:.4g} J per step, "
        f"{prediction.peak_mb:.0f} MB ({prediction.memory_outcome}); "
        f"after {prediction.query.minutes:g} min: battery {prediction.temp_c:.1f} °C, "
        f"big cores {prediction.big_khz} kHz, {prediction.sustained_step_ms:.4g} ms per step"
    )
    if prediction.compute_ms is not None:
        click.echo(
            f"  GPU {prediction.gpu_util_pct:.0f} % busy, first core {prediction.cpu_util_pct:.0f} "
            f"% busy; per step {prediction.copy_ms:.4g} ms of copies, {prediction.queue_ms:.4g} ms "
            f"in the queue, {prediction.compute_ms:.4g} ms of kernels"
        )
    for family, provenance in prediction.provenance.items():
        error = f", error {provenance['error_rel']:.0%}" if "error_rel" in provenance else ""
        click.echo(f"  {family}: simulated, {provenance['model']}{error}")
    for name, (low, high) in prediction.interval_95.items():
        click.echo(f"  {name}: 95 % between {low:.4g} and {high:.4g}")
    core = prediction.one_core
    click.echo(
        f"  CoreMark on one {core['role']} core at {core['khz']} kHz: {core['milliwatts']} mW "
        f"above idle, 95 % between {core['low_mw']} and {core['high_mw']} ({core['grade']})"
    )


@click.command(name="estimate-durations", hidden=True)
def estimate_durations_command() -> None:
    """Estimate how long runs take, in seconds of the phone's clock.

    Reads a JSON list of {"model", "runs"} from stdin. Prints, for each model, a list of
    [measuring, cooling] per run, or null for a run that the phone does not support. Measuring is a
    list of equally likely times, as far apart as the error of the condition demands.

    \b
    Example:
      farm virtual estimate-durations < runs.json
    """
    from agent.virtual.twin.durations import RunSpec, estimate_duration, profile_for_model

    try:
        runs_by_model = [
            (entry["model"], [RunSpec(**run) for run in entry["runs"]])
            for entry in json.load(sys.stdin)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"stdin is not a list of models and runs: {error}") from error
    answers = []
    for model, runs in runs_by_model:
        profile = profile_for_model(model)
        durations = [estimate_duration(profile, run) if profile else None for run in runs]
        answers.append([[list(d.likely_s), d.cooled_s] if d else None for d in durations])
    click.echo(json.dumps(answers))


@click.command(name="calibrate")
@click.argument("phone")
@click.option(
    "--sweep",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Your own sweep: the CSV file of 'farm export SWEEP'.",
)
@click.option("--model", default="", help="Use only rows of this phone model of the sweep.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the phone fitted to the sweep."
)
def calibrate_command(phone: str, sweep: Path, model: str, output: Path | None) -> None:
    """Fit PHONE to a sweep that you measured.

    PHONE is the model that is nearest to yours. Prints the error of the twin before and after, and
    its error on cells that were left out.

    \b
    Example:
      farm virtual calibrate xiaomi-mi-9 --sweep mine.csv --output mi-9-of-our-lab.toml
    """
    from agent.virtual.phone_specs import check_profile
    from agent.virtual.profiles import load_profile
    from agent.virtual.twin.fit_sweep import fit_sweep, fitted_document, format_fits, read_sweep

    try:
        profile = load_profile(check_profile(phone))
        with show_wait("the fit to your sweep, and to all cells left out"):
            before, fits = fit_sweep(profile, read_sweep(sweep, model))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for fit, error_before in zip(fits, before, strict=True):
        after = max(fit.mean_left_out(group) for group in fit.left_out)
        click.echo(
            f"{fit.quantity}: the twin was {error_before:.0%} wrong over {fit.rows} cells; now "
            f"{fit.fit_error:.0%}, and {after:.0%} on cells that were left out"
        )
    for line in format_fits(fits):
        click.echo(f"  {line}")
    if output is not None:
        output.write_text(fitted_document(phone, str(sweep), fits), encoding="utf-8")
        say(f"written to {output}; use it as PHONE, such as 'farm virtual predict {output}'")


@click.command(name="curve")
@click.argument("soc", metavar="SOC|PHONE|FILE")
@click.option(
    "--power-profile",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Also show the power according to this power_profile.xml.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def curve_command(soc: str, power_profile: Path | None, as_json: bool) -> None:
    """Show the power of one core at every clock step of a SOC.

    Steps without a measurement are predicted from their cluster, SoC and family. The interval
    contains 95 % of such steps. FILE is your own SoC table.

    \b
    Examples:
      farm virtual curve sm8150
      farm virtual curve google-pixel-8-pro --json
    """
    from agent.virtual.profiles import load_profile, profile_ids
    from agent.virtual.socs import load_soc
    from agent.virtual.twin.curve_error import predict_curve
    from agent.virtual.twin.power_profile import profile_errors, profile_mw, read_power_profile

    try:
        table = load_soc(load_profile(soc).soc_table if soc in profile_ids() else soc)
        profile = read_power_profile(power_profile) if power_profile else ()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    points = predict_curve(table)
    by_role = dict(zip((str(part.role) for part in table.cluster), profile, strict=False))
    errors = profile_errors(table, profile)
    profile_values = [
        round(profile_mw(by_role[point.role], point.khz), 1) if point.role in by_role else None
        for point in points
    ]
    if as_json:
        steps = [
            asdict(point) | {"profile_mw": value}
            for point, value in zip(points, profile_values, strict=True)
        ]
        answer = {"soc": table.id, "sources": table.sources, "steps": steps}
        click.echo(json.dumps(answer | {"power_profile_error": errors}))
        return
    click.echo(f"{table.name}, process {table.process_nm} nm")
    _print_curve(points, profile_values)
    for part in table.cluster:
        click.echo(f"{part.role}: power {part.grade}")
    for role, share in errors.items():
        click.echo(f"{role}: the power profile is {share:.0%} off the measured rows (median)")


def _print_curve(points: "list[CurvePoint]", profile_values: list[float | None]) -> None:
    heading = f"{'role':<7} {'kHz':>8} {'CoreMark/s':>10} {'mW':>7} {'95 %':>15} {'measured':>9}"
    click.echo(heading + "  profile mW" * any(value is not None for value in profile_values))
    for point, value in zip(points, profile_values, strict=True):
        interval = f"{point.low_mw:.0f} to {point.high_mw:.0f}"
        measured = "" if point.measured_mw is None else f"{point.measured_mw:.1f}"
        click.echo(
            f"{point.role:<7} {point.khz:>8} {point.coremark_per_s:>10.0f} "
            f"{point.milliwatts:>7.1f} {interval:>15} {measured:>9}"
            + ("" if value is None else f"  {value:>10.1f}")
        )


@click.command(name="build")
@click.argument("soc", metavar="SOC|FILE")
@click.option("--body", default="", help="Phone whose body and layout are used. Default: same SoC.")
@click.option("--name", required=True, help="Name of the phone.")
@click.option(
    "--thermal",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the thermal policy from this thermal_info_config.json.",
)
@click.option(
    "--facts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take zones and properties from this facts file of a capture.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File to write the profile to."
)
def build_command(
    soc: str, body: str, name: str, thermal: Path | None, facts: Path | None, output: Path | None
) -> None:
    """Build a phone from a SoC table, public files and a capture.

    Prints which figures are measured, derived or guessed.

    \b
    Examples:
      farm virtual build sm8350 --name "Our Mi 11"
      farm virtual build zuma --name "Pixel 8 Pro" --thermal thermal.json -o husky.toml
    """
    from agent.virtual.phone_specs import check_profile
    from agent.virtual.profiles import load_profile, profile_ids
    from agent.virtual.socs import load_soc
    from agent.virtual.twin.build_profile import build_phone

    try:
        table = load_soc(soc)
        same_soc = [name for name in profile_ids() if load_profile(name).soc_table == table.id]
        body_id = check_profile(body) if body else (same_soc or ["oneplus-8-pro"])[0]
        reference = str(Path(soc).resolve()) if soc.endswith(".toml") else table.id
        built = build_phone(table, reference, body_id, name, thermal, facts)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for figure in built.figures:
        click.echo(f"{figure.figure:<16} {figure.value:<28} {figure.grade:<9} {figure.source}")
    click.echo(f"{name}: {built.profile.calibration}")
    if output is not None:
        output.write_text(built.text, encoding="utf-8")
        say(f"written to {output}; use it as PHONE, such as 'farm virtual up {output}'")
