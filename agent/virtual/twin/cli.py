"""`farm virtual predict`, `farm virtual foresee` and `farm virtual calibrate`."""

import json
import sys

import click


@click.command(name="predict")
@click.argument("phone")
@click.option("--workload", required=True, help="As `farm workloads` lists them.")
@click.option("--batch", type=click.IntRange(1), help="Samples a step.")
@click.option("--cores", default="big4", show_default=True, help="big1..4, little1..4, all8.")
@click.option("--freq", help="kHz, high, mid or low; the default governor where absent.")
@click.option(
    "--minutes",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 600),
    help="Minutes of sustained work before temperature and clock are told.",
)
@click.option("--backend", default="cpu", show_default=True, type=click.Choice(["cpu", "opencl"]))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def predict_command(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    phone: str,
    workload: str,
    batch: int | None,
    cores: str,
    freq: str | None,
    minutes: float,
    backend: str,
    as_json: bool,
) -> None:
    """Say what PHONE would measure in a condition, without running it."""
    from agent.virtual.profiles import profile_ids
    from agent.virtual.twin.predict import Asked, predict

    if phone not in profile_ids():
        raise click.UsageError(f"no profile '{phone}'; there are {', '.join(profile_ids())}")
    try:
        said = predict(phone, Asked(workload, batch, cores, freq, minutes, backend))
    except Exception as error:
        if type(error).__name__ not in ("Refused", "UnknownCondition"):
            raise
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(said.as_json()))
        return
    click.echo(
        f"{said.step_ms:.4g} ms a step, {said.power_w:.2f} W ({said.power_basis}), "
        f"{said.energy_j_per_step:.4g} J a step, {said.peak_mb:.0f} MB ({said.memory}); "
        f"after {minutes:g} min: battery {said.temp_c:.1f} °C, big cores {said.big_khz} kHz, "
        f"{said.sustained_step_ms:.4g} ms a step"
    )
    for family, source in said.provenance.items():
        error_rel = f", error {source['error_rel']:.0%}" if "error_rel" in source else ""
        click.echo(f"  {family}: simulated, {source['model']}{error_rel}")


@click.command(name="foresee")
def foresee_command() -> None:
    """Say how long runs would take, in the phone's time.

    On stdin a JSON list of {"model", "runs"}; on stdout for each a list of [measuring, cooling],
    with null for a run that the twin cannot make sense of.
    """
    from agent.virtual.twin.foresee import Wanted, foresee, profile_of

    try:
        asked = [
            (phone["model"], [Wanted(**run) for run in phone["runs"]])
            for phone in json.load(sys.stdin)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"stdin is not the question it should be: {error}") from error
    answers = []
    for model, runs in asked:
        profile = profile_of(model)
        found = [foresee(profile, run) if profile else None for run in runs]
        answers.append([[each.measured_s, each.cooled_s] if each else None for each in found])
    click.echo(json.dumps(answers))


@click.command(name="calibrate")
@click.argument("phones", nargs=-1, metavar="[PHONE]...")
@click.option("--write", is_flag=True, help="Put what was found into the profile.")
def calibrate_command(phones: tuple[str, ...], write: bool) -> None:
    """Fit phones to what was measured; print the errors of the fit and of what it was not shown."""
    from agent.virtual.twin.calibrate import calibrate, lines_of, write_down
    from agent.virtual.twin.measured import measured_ids

    unknown = [name for name in phones if name not in measured_ids()]
    if unknown:
        known = ", ".join(measured_ids())
        raise click.UsageError(f"nothing was measured on '{unknown[0]}'; there are {known}")
    for name in phones or measured_ids():
        fits = calibrate(name)
        click.echo(name)
        for line in lines_of(fits):
            click.echo(f"  {line}")
        for path in write_down(name, fits) if write else ():
            click.echo(f"  written to {path.name}")
