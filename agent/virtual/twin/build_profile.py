"""Builds a phone from a SoC table, public files and a capture: SoC + body + layout.

Each figure states its source. A figure that no file contains is taken from a phone of the same
class and marked as guessed.
"""

import json
import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.virtual.layouts import layout_path, read_facts
from agent.virtual.profiles import PhoneProfile, assemble_profile, profile_path
from agent.virtual.socs import SocTable
from workloads.text import format_toml

_SIZE_MAX = 4 << 20
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_PID_STEPS_SHARE = 0.3  # derived: of a PID controller's range, where it holds the skin


class InvalidBuild(ValueError):
    """Files that do not make a phone, in one sentence."""


@dataclass(frozen=True, slots=True)
class BuiltFigure:
    """One group of figures: its value as text, and measured, derived or guessed."""

    figure: str
    value: str
    grade: str
    source: str


@dataclass(frozen=True, slots=True)
class BuiltPhone:
    """A phone, its file, and where its figures come from."""

    profile: PhoneProfile
    text: str
    figures: tuple[BuiltFigure, ...]


def build_phone(
    soc: SocTable,
    soc_reference: str,
    body_id: str,
    name: str,
    thermal: Path | None = None,
    facts: Path | None = None,
) -> BuiltPhone:
    """Build a phone from its parts, with the source of every figure."""
    figures: dict[str, Any] = tomllib.loads(profile_path(body_id).read_text(encoding="utf-8"))
    body_soc = figures["soc_table"]
    for key in ("fitted", "levels", "top_khz", "chosen_by"):
        figures.pop(key, None)
    figures |= {
        "id": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
        "name": name,
        "soc": soc.name,
        "soc_table": soc_reference,
        "sources": [*soc.sources, f"body, and layout unless captured: {body_id}"],
    }
    listed = _soc_figures(soc)
    figures["zone"], figures["cooling"], figures["throttle"] = _with_roles(figures, soc)
    if facts is not None:
        listed += _apply_facts(figures, facts)
    if thermal is not None:
        listed += _apply_thermal(figures, thermal, soc)
    else:
        listed.append(BuiltFigure("thermal policy", "its rungs", "guessed", body_id))
    grade = "guessed" if body_soc != soc.id else "derived"
    listed.append(BuiltFigure("memory, GPU", "speeds and power", grade, body_id))
    listed.append(BuiltFigure("heat, battery", "capacities, resistances", "guessed", body_id))
    try:
        profile = assemble_profile(figures, soc)
    except ValueError as error:
        raise InvalidBuild(f"{name} is not complete: {str(error).splitlines()[0]}") from None
    return BuiltPhone(profile, format_toml(figures), tuple(listed))


def _soc_figures(soc: SocTable) -> list[BuiltFigure]:
    figures = []
    for part in soc.cluster:
        grade = {"measured": "measured", "points": "derived"}.get(part.grade, "guessed")
        text = f"{len(part.cpus)} x {part.design}, {len(part.ladder_khz)} steps"
        figures.append(
            BuiltFigure(f"{part.role} cores", text, "measured" if part.rows else "guessed", soc.id)
        )
        source = {"measured": soc.measured_on, "points": f"two points of {soc.measured_on}"}
        figures.append(
            BuiltFigure(
                f"{part.role} power", "base, dynamic, knee", grade, source.get(part.grade, "family")
            )
        )
    return figures


def _with_roles(figures: dict[str, Any], soc: SocTable) -> tuple[list[Any], list[Any], list[Any]]:
    """Return zones, cooling devices and policies, with roles that the SoC has."""
    roles = [part.role for part in soc.cluster]

    def known(role: str | None) -> str | None:
        if role is None or role == "gpu" or role in roles:
            return role
        return roles[-1] if role in ("big", "prime") else roles[min(1, len(roles) - 1)]

    zones = [
        {**zone, "cluster": known(zone["cluster"])} if "cluster" in zone else zone
        for zone in figures["zone"]
    ]
    cooling = [
        {"type": f"thermal-cpufreq-{number}", "cluster": role} for number, role in enumerate(roles)
    ] + [device for device in figures["cooling"] if device.get("cluster") in (None, "gpu")]
    throttle = [
        {
            **policy,
            "clusters": sorted({role for name in policy["clusters"] if (role := known(name))}),
        }
        for policy in figures["throttle"]
    ]
    return zones, cooling, throttle


def _apply_facts(figures: dict[str, Any], path: Path) -> list[BuiltFigure]:
    """Take the layout from a facts file, as `farm phone capture` writes it."""
    try:
        facts = read_facts(path)
        types = {str(zone["type"]) for zone in facts.get("zone", ())}
        count = len(facts["properties"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidBuild(f"{path.name} is not a facts file: {error}") from None
    watched = {policy["zone"] for policy in figures["throttle"]}
    # Properties that the capture lacks are those of the body.
    figures["build"] = read_facts(layout_path(figures["layout_file"]))["properties"]
    figures["layout_file"] = str(path.resolve())
    # A policy's zone stays, even where the capture does not show it: some are virtual sensors.
    figures["zone"] = [zone for zone in figures["zone"] if zone["type"] in types | watched]
    return [
        BuiltFigure("properties", f"{count} of them", "measured", path.name),
        BuiltFigure("thermal zones", f"{len(types)} names", "measured", path.name),
        BuiltFigure("thermal zones", "their places", "guessed", "their names"),
    ]


def _apply_thermal(figures: dict[str, Any], path: Path, soc: SocTable) -> list[BuiltFigure]:
    """Take the policy of the CPU from a thermal_info_config.json."""
    try:
        text = _COMMENT.sub("", path.read_bytes()[:_SIZE_MAX].decode("utf-8"))
        sensors = json.loads(text)["Sensors"]
        policies = [policy for sensor in sensors if (policy := _policy(sensor, soc))]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidBuild(f"{path.name} is not a thermal configuration: {error}") from None
    if not policies:
        raise InvalidBuild(f"{path.name} has no sensor that caps a CPU cluster")
    skin = next((zone for zone in figures["zone"] if zone["node"] == "body"), None)
    if skin is None:
        raise InvalidBuild("the layout has no zone on the body; use another --body")
    names = {zone["type"] for zone in figures["zone"]}
    service = next((p["service"] for p in figures["throttle"] if p.get("service")), "thermal-hal")
    kernel = [policy for policy in figures["throttle"] if not policy.get("rungs")]
    watched = "VIRTUAL-SKIN" if "VIRTUAL-SKIN" in names else skin["type"]
    figures["throttle"] = [{**policy, "zone": watched, "service": service} for policy in policies]
    figures["throttle"] += kernel
    trips = ", ".join(f"{rung['trip_c']:g}" for rung in policies[0]["rungs"])
    return [BuiltFigure("thermal policy", f"trips at {trips} °C", "derived", path.name)]


def _policy(sensor: dict[str, Any], soc: SocTable) -> dict[str, Any] | None:
    """Return the policy of one sensor; None if it caps no CPU cluster."""
    caps = [
        cap
        for cap in sensor.get("BindedCdevInfo", ())
        if str(cap.get("CdevRequest", "")).startswith("thermal-cpufreq")
    ]
    if not caps:
        return None
    trips = [_number(value) for value in sensor["HotThreshold"]]
    gains = [_number(value) for value in sensor.get("PIDInfo", {}).get("K_Po", [])]
    rungs: list[dict[str, float]] = []
    for level, trip in enumerate(trips):
        limits = [int(cap["LimitInfo"][level]) for cap in caps if "LimitInfo" in cap]
        steps = max(limits, default=0)
        if trip is not None and level < len(gains) and gains[level] is not None:
            ceiling = max(int(cap["CdevCeiling"][level]) for cap in caps)
            steps = max(steps, round(_PID_STEPS_SHARE * ceiling))
        if trip is not None and steps > 0 and 0 < trip < 100:
            rungs.append({"trip_c": trip, "steps": steps})
    if not rungs:
        return None
    rungs = list({rung["trip_c"]: rung for rung in sorted(rungs, key=_trip)}.values())
    numbers = {int(str(cap["CdevRequest"]).rpartition("-")[2]) for cap in caps}
    roles = [part.role for number, part in enumerate(soc.cluster) if number in numbers]
    hysteresis = max(
        (_number(value) or 0.0 for value in sensor.get("HotHysteresis", ())), default=1.0
    )
    return {
        "rungs": rungs,
        "hysteresis_c": hysteresis or 1.0,
        "poll_s": max(float(sensor.get("PassiveDelay", 7000)) / 1000, 0.1),
        "clusters": roles or [soc.cluster[-1].role],
    }


def _trip(rung: dict[str, float]) -> tuple[float, float]:
    return rung["trip_c"], rung["steps"]


def _number(value: object) -> float | None:
    number = float(str(value))
    return None if math.isnan(number) else number
