"""Fits the phones of published measurements, and the power of one core of every SoC table.

    python -m benchmarks.phone_fits.fit_phones [--write | --socs] [PHONE...]

Prints the error of each fit, and its error on rows that were left out, which profiles state. With
--write, the fitted values go into the profiles and the engine's file. With --socs, only the power
of cores is fitted, and goes into the SoC tables.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.virtual.engines import EngineModel, engine_path, load_engine
from agent.virtual.profiles import PhoneProfile, load_profile, profile_path
from agent.virtual.socs import load_soc, soc_ids, soc_path
from agent.virtual.twin.core_power_model import CorePowerModel
from agent.virtual.twin.cores_and_clocks import parse_cores
from agent.virtual.twin.fit_result import MEAN_PER_DEVIATION, FitResult, stated_error
from agent.virtual.twin.fit_sweep import format_fits, given_figures
from agent.virtual.twin.simulated_provenance import FAMILIES
from benchmarks.phone_fits.fit_gemm import fit_gemm
from benchmarks.phone_fits.fit_heat import fit_heat, with_rest_temperature
from benchmarks.phone_fits.fit_memory import fit_memory
from benchmarks.phone_fits.fit_power import fit_power
from benchmarks.phone_fits.fit_time import fit_time, with_values
from benchmarks.phone_fits.measurements import load_measurements, measured_profile_ids

_BLOCK_HEADING = "\n# Written by `python -m benchmarks.phone_fits.fit_phones --write`."
_CLUSTER_HEADING = "[[cluster]]"
_POOLED_ROWS = 4.0  # weight of the error of all kinds, in rows of one kind


def fit_phone(profile_id: str) -> list[FitResult]:
    """Fit every quantity that was measured on one phone."""
    profile = load_profile(profile_id)
    measured = load_measurements(profile_id)
    fits: list[FitResult] = []
    if measured.step:
        fits += _fit_training(profile, load_engine("mnn"))
    if measured.battery_c:
        fits += fit_heat(profile, measured)
    if measured.gemm:
        fits += fit_gemm(profile, measured)
    return fits


def _fit_training(profile: PhoneProfile, engine: EngineModel) -> list[FitResult]:
    """Fit times first: power depends on how busy the cores are."""
    measured = load_measurements(profile.id)
    fits = fit_time(profile, engine, measured)
    values = {**fits[0].values, **{f"engine.{key}": v for key, v in fits[0].engine.items()}}
    timed_profile, fitted_engine = with_values(profile, engine, values)
    power = fit_power(timed_profile, fitted_engine, measured)
    if measured.rest_c is not None:
        fitted_room = with_rest_temperature(timed_profile, measured.rest_c).fitted
        power[0] = replace(power[0], room_c=fitted_room.room_c if fitted_room else None)
    return [*fits, *power, fit_memory(fitted_engine, measured)]


def write_fits(profile_id: str, fits: Sequence[FitResult]) -> list[Path]:
    """Write the values into the profile's fitted block and into the engine's file."""
    path = profile_path(profile_id)
    path.write_text(given_figures(profile_id) + _fitted_block(profile_id, fits), encoding="utf-8")
    engine_values = {key: value for fit in fits for key, value in fit.engine.items()}
    if not engine_values:
        return [path]
    engine = engine_path("mnn")
    engine.write_text(
        _with_engine_values(engine.read_text(encoding="utf-8"), engine_values), encoding="utf-8"
    )
    return [path, engine]


_RISE_K = 11.8  # of the measured temperatures


def stated_errors(fit: FitResult) -> dict[str, float]:
    """Return the errors to state by what was left out; of a temperature, of the measured rise.

    A kind of core has few rows, so that its error is drawn towards that of all kinds.
    """
    divisor = _RISE_K if fit.unit == "K" else 1.0
    stated: dict[str, float] = {}
    for group, errors in fit.left_out.items():
        same = [name for name in fit.left_out if name.partition(",")[0] == group.partition(",")[0]]
        weights = list(fit.weights.get(group, [1.0] * len(errors)))
        found = [error / divisor for error in errors]
        if len(same) > 1:
            pooled = stated_error(
                [error for name in same for error in fit.left_out[name]],
                [weight for name in same for weight in fit.weights[name]],
            )
            found, weights = [*found, pooled / MEAN_PER_DEVIATION], [*weights, _POOLED_ROWS]
        stated[group] = stated_error(found, weights)
    return stated


def write_socs() -> list[Path]:
    """Fit the power of one core to all tables, and write the figures of every cluster."""
    model = CorePowerModel(load_soc(soc_id) for soc_id in soc_ids())
    written = []
    for soc in (load_soc(soc_id) for soc_id in soc_ids()):
        path = soc_path(soc.id)
        head, *parts = path.read_text(encoding="utf-8").split(_CLUSTER_HEADING)
        for position, part in enumerate(soc.cluster):
            lines = parts[position].rstrip().splitlines()
            figures = model.figures(soc, part)
            power = (
                f"power = {{ base_mw = {figures.base_mw}, dyn_uw_per_mhz = "
                f"{figures.dyn_uw_per_mhz}, knee_khz = {figures.knee_khz:.0f} }}"
            )
            kept = [line for line in lines if not line.startswith("power = ")]
            parts[position] = "\n".join([*kept, power, "", ""])
        path.write_text(_CLUSTER_HEADING.join([head, *parts]).rstrip() + "\n", encoding="utf-8")
        written.append(path)
    return written


def _fitted_block(profile_id: str, fits: Sequence[FitResult]) -> str:
    profile, measured = load_profile(profile_id), load_measurements(profile_id)
    rooms = [fit.room_c for fit in fits if fit.room_c is not None]
    mask = sum(1 << cpu for cpu in parse_cores(profile, "big4")) if measured.has_free_clocks else 0
    lines = [
        _BLOCK_HEADING,
        "[fitted]",
        f'measurements_file = "benchmarks/phone_fits/measurements/{profile_id}.toml"',
        f"mask = {mask:#x}",
    ]
    lines += [f"room_c = {rooms[0]:.2f}"] if rooms else []
    lines += ['engine = "mnn"'] if measured.step else []
    levels = [profile.levels.get(name, {}) for name in ("low", "high")]
    if measured.core_set and all(levels):
        low, high = levels
        ranges = ", ".join(f"{role} = [{khz}, {high[role]}]" for role, khz in low.items())
        lines.append(f"clocks_khz = {{ {ranges} }}")
    lines += ["", "[fitted.error_rel]"]
    for family in FAMILIES:
        errors = {
            group: error
            for fit in fits
            if fit.family == family
            for group, error in stated_errors(fit).items()
        }
        if errors:
            pairs = ", ".join(f'"{group}" = {error:.3f}' for group, error in errors.items())
            lines.append(f"{family} = {{ {pairs} }}")
    lines += ["", "[fitted.values]"]
    values = {path: value for fit in fits for path, value in fit.values.items()}
    lines += [f'"{path}" = {value:.5g}' for path, value in values.items()]
    return "\n".join(lines) + "\n"


def _with_engine_values(text: str, engine_values: dict[str, float]) -> str:
    for path, value in engine_values.items():
        name = path.rpartition(".")[2]
        start = rf"(\b{name} = )" if "." in path else rf"(?m)(^{name} = )"
        text = re.sub(start + r"[\d.]+", rf"\g<1>{value:.5g}", text, count=1)
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit the phones that were asked for, and print their errors."""
    parser = argparse.ArgumentParser(description="Fits phones to published measurements.")
    parser.add_argument("phones", nargs="*", metavar="PHONE", help="default: every measured one")
    parser.add_argument("--write", action="store_true", help="write the fitted values")
    parser.add_argument("--socs", action="store_true", help="write the power of every SoC's cores")
    options = parser.parse_args(arguments)
    unknown = set(options.phones) - set(measured_profile_ids())
    if unknown:
        known = ", ".join(measured_profile_ids())
        parser.error(f"no measurements of {', '.join(sorted(unknown))}; use one of {known}")
    if options.socs:
        print(f"written to {len(write_socs())} SoC tables")
        return
    for name in options.phones or measured_profile_ids():
        fits = fit_phone(name)
        print(name, *format_fits(fits), sep="\n  ")
        for path in write_fits(name, fits) if options.write else ():
            print(f"  written to {path.name}")


if __name__ == "__main__":
    main()
