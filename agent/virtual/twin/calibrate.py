"""Calibration: fit a phone to what was measured on it, say how well, and write it down if told.

The error that is written is the leave-one-out one: what the model misses where it was not shown.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.virtual.engines import Engine, engine_path, load_engine
from agent.virtual.profiles import Profile, load_profile, profile_path
from agent.virtual.twin.fit_gemm import fit_gemm
from agent.virtual.twin.fit_heat import fit_heat, room_for
from agent.virtual.twin.fit_memory import fit_memory
from agent.virtual.twin.fit_power import fit_power
from agent.virtual.twin.fit_time import fit_time, with_values
from agent.virtual.twin.measured import measured_on
from agent.virtual.twin.report import Fit

_BLOCK = "\n# What `farm virtual calibrate --write` found."
_FAMILIES = ("time", "energy", "heat", "clock")


def calibrate(profile_id: str) -> list[Fit]:
    """Fit everything that was measured on one phone."""
    profile = load_profile(profile_id)
    measured = measured_on(profile_id)
    fits: list[Fit] = []
    if measured.step:
        fits += _fit_training(profile, load_engine("mnn"))
    if measured.battery_c:
        fits += fit_heat(profile, measured)
    if measured.gemm:
        fits += fit_gemm(profile, measured)
    return fits


def _fit_training(profile: Profile, engine: Engine) -> list[Fit]:
    """Time first: how hard the cores work decides what they draw."""
    measured = measured_on(profile.id)
    fits = fit_time(profile, engine, measured)
    found = {**fits[0].values, **{f"engine.{key}": v for key, v in fits[0].engine.items()}}
    timed, fitted_engine = with_values(profile, engine, found)
    power = fit_power(timed, fitted_engine, measured)
    if measured.rest_c is not None:
        resting = room_for(timed, measured.rest_c).fitted
        power[0] = replace(power[0], room_c=resting.room_c if resting else None)
    return [*fits, *power, fit_memory(fitted_engine, measured)]


def lines_of(fits: Sequence[Fit]) -> list[str]:
    """The table that a person reads."""
    lines = [f"{'quantity':<20} {'rows':>4} {'fit error':>10}  left out"]
    for fit in fits:
        left = ", ".join(f"{_error(fit, e)} by {what}" for what, e in fit.left_out.items())
        error = _error(fit, fit.fit_error)
        lines.append(f"{fit.quantity:<20} {fit.rows:>4} {error:>10}  {left or 'nothing left out'}")
    return lines


def write_down(profile_id: str, fits: Sequence[Fit]) -> list[Path]:
    """Put what was found into the profile's fitted block and into the engine's file."""
    path = profile_path(profile_id)
    text = path.read_text(encoding="utf-8").partition(_BLOCK)[0].rstrip() + "\n"
    path.write_text(text + _block_of(profile_id, fits), encoding="utf-8")
    habits = {key: value for fit in fits for key, value in fit.engine.items()}
    if not habits:
        return [path]
    engine = engine_path("mnn")
    engine.write_text(_with_habits(engine.read_text(encoding="utf-8"), habits), encoding="utf-8")
    return [path, engine]


def error_rel(fit: Fit, rise: float = 11.8) -> float | None:
    """The leave-one-out error as a share; of a temperature, of the rise that was measured."""
    worst = fit.worst_left_out
    if worst is None:
        return None
    return worst / rise if fit.unit == "K" else worst


def _block_of(profile_id: str, fits: Sequence[Fit]) -> str:
    rooms = [fit.room_c for fit in fits if fit.room_c is not None]
    values = {path: value for fit in fits for path, value in fit.values.items()}
    lines = [_BLOCK, "[fitted]", f'measured_at = "agent/virtual/twin/measured/{profile_id}.toml"']
    if rooms:
        lines.append(f"room_c = {rooms[0]:.2f}")
    lines += ["", "[fitted.error_rel]"]
    for fit in fits:
        share = error_rel(fit)
        if fit.family in _FAMILIES and share is not None:
            lines.append(f"{fit.family} = {share:.3f}")
    lines += ["", "[fitted.values]"]
    lines += [f'"{path}" = {value:.5g}' for path, value in values.items()]
    return "\n".join(lines) + "\n"


def _with_habits(text: str, habits: dict[str, float]) -> str:
    for path, value in habits.items():
        name = path.rpartition(".")[2]
        start = rf"(\b{name} = )" if "." in path else rf"(?m)(^{name} = )"
        text = re.sub(start + r"[\d.]+", rf"\g<1>{value:.5g}", text, count=1)
    return text


def _error(fit: Fit, error: float) -> str:
    return f"{error:.2f} K" if fit.unit == "K" else f"{error:.1%}"
