"""`farm virtual predict`, `calibrate` and `estimate-durations`: questions to the physical model."""

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agent.virtual.twin.predict import Prediction


@click.command(name="predict")
@click.argument("phone")
@click.option("--workload", required=True, help="Workload, see 'farm workload list'.")
@click.option("--batch", type=click.IntRange(1), help="Samples per step.")
@click.option(
    "--cores", default="big4", show_default=True, help="Core set: big1..4, little1..4, all8."
)
@click.option("--freq", help="Clock: kHz, high, mid or low. Default: the governor's.")
@click.option(
    "--minutes",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 600),
    help="Minutes of sustained work before temperatures and clock are reported.",
)
@click.option(
    "--backend",
    default="cpu",
    show_default=True,
    type=click.Choice(["cpu", "opencl"]),
    help="Processor that computes.",
)
@click.option("--kernel", default="tuned", show_default=True, help="Variant of the matrix product on the GPU.")
@click.option("--feed", default="resident", show_default=True, help="How batches reach the GPU.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def predict_command(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    phone: str,
    workload: str,
    batch: int | None,
    cores: str,
    freq: str | None,
    minutes: float,
    backend: str,
    kernel: str,
    feed: str,
    as_json: bool,
) -> None:
    """Predict what PHONE would measure.

    The prediction comes from the physical model; nothing is run.

    \b
    Examples:
      farm virtual predict meizu-16t --workload emdl-alexnet --batch 16
      farm virtual predict oneplus-6 --workload mlp-2 --backend opencl --feed copied --json
    """
    from agent.virtual.phone_specs import check_profile
    from agent.virtual.twin.predict import PredictionQuery, predict

    try:
        query = PredictionQuery(workload, batch, cores, freq, minutes, backend, kernel, feed)
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
        f"after {prediction.minutes:g} min: battery {prediction.temp_c:.1f} °C, "
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


@click.command(name="estimate-durations", hidden=True)
def estimate_durations_command() -> None:
    """Estimate how long runs take, in seconds of the phone's clock.

    Reads a JSON list of {"model", "runs"} from stdin. Prints, for each model, a list of
    [measuring, cooling] per run, or null for a run that the phone does not support.

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
        answers.append([[d.measured_s, d.cooled_s] if d else None for d in durations])
    click.echo(json.dumps(answers))


@click.command(name="calibrate")
@click.argument("phones", nargs=-1, metavar="[PHONE]...")
@click.option("--write", is_flag=True, help="Write the fitted values to the profile.")
def calibrate_command(phones: tuple[str, ...], write: bool) -> None:
    """Fit phones to measurements.

    Prints the error of the fit, and its error on rows that were left out.

    \b
    Examples:
      farm virtual calibrate samsung-s8-plus
      farm virtual calibrate --write
    """
    from agent.virtual.twin.calibrate import calibrate, format_fits, write_fits
    from agent.virtual.twin.measurements import measured_profile_ids

    unknown = [name for name in phones if name not in measured_profile_ids()]
    if unknown:
        known = ", ".join(measured_profile_ids())
        raise click.UsageError(f"no measurements of '{unknown[0]}'; use one of {known}")
    for name in phones or measured_profile_ids():
        fits = calibrate(name)
        click.echo(name)
        for line in format_fits(fits):
            click.echo(f"  {line}")
        for path in write_fits(name, fits) if write else ():
            click.echo(f"  written to {path.name}")
