"""Layouts of phones: facts files, as `farm phone capture` writes them, one per phone model.

This reader is independent of the agent's, so that an error in one of them is not repeated in the
other.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FACTS_SCHEMA = 1
_FOLDER = Path(__file__).parent
_FILE_BYTES_MAX = 4 * 2**20
# Words in names of zones, and where such a sensor is; the others show their captured value.
_WORDS = (
    ("batt", "battery"),
    ("skin", "body"),
    ("quiet", "body"),
    ("shell", "body"),
    ("case", "body"),
    ("msm_therm", "body"),
    ("cpu", "die"),
    ("cluster", "die"),
    ("tsens", "die"),
    ("big", "die"),
    ("mid", "die"),
    ("little", "die"),
    ("mngs", "die"),
    ("apollo", "die"),
    ("soc_max", "die"),
    ("soc_thermal", "die"),
    ("_therm", "body"),
)
_DEAD_WORDS = ("step", "modem", "ocp", "cycle", "lvl", "charge", "cam")


def layout_path(name: str) -> Path:
    """Return the file of a layout of the project, or the path itself."""
    return Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"


def read_facts(path: Path) -> dict[str, Any]:
    """Read a facts file; the error is one sentence."""
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise ValueError(f"{path} is too large for a facts file")
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    schema = facts.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise ValueError(f"{path} is not a facts file: it has no number `schema`")
    if schema > FACTS_SCHEMA:
        raise ValueError(
            f"{path} has schema {schema}, this version reads {FACTS_SCHEMA}; update Farmhand"
        )
    return facts


def layout_figures(
    path: Path,
    places: Sequence[Mapping[str, Any]],
    watched: set[str],
    roles: Sequence[str],
    defaults: Mapping[str, str],
) -> dict[str, Any]:
    """Return what a layout adds to a profile: zones, properties, release, services and nodes.

    `places` says where the sensors of some zones are; `watched` are the zones of thermal policies,
    which may be virtual sensors without a node; `defaults` are properties that a capture may lack.
    """
    facts = read_facts(path)
    try:
        captured = {
            str(key): str(value)
            for key, value in facts["properties"].items()
            if not key.endswith("serialno")  # each virtual phone has its own
        }
        properties = {**defaults, **captured}
        placed = {place["type"]: place for place in places}
        zones = [
            {**placed[zone["type"]], "number": zone["number"]}
            if zone["type"] in placed
            else zone_figures(zone, raw_number(zone.get("temp")), roles)
            for zone in facts.get("zone", ())
        ]
        nodes = {
            str(path): text if text.endswith("\n") else f"{text}\n"
            for path, text in facts.get("nodes", {}).items()
        }
        shown = {zone["type"] for zone in zones}
        services = (*facts.get("services", ()), "surfaceflinger", "zygote", "adbd")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a complete facts file: {error}") from None
    for name, place in placed.items():
        if name not in shown and name in watched:
            zones.append({**place, "listed": False})
        elif name not in shown:
            raise ValueError(f"zone '{name}' is not in {path.name}; remove it from the profile")
    sdk = re.match(r"\d+", properties.get("ro.build.version.sdk", ""))
    return {
        "zone": zones,
        "android": properties.get("ro.build.version.release", ""),
        "sdk": int(sdk[0]) if sdk else 0,
        "build": properties,
        "services": services,
        "nodes": nodes,
    }


def raw_number(temp: str | None) -> int | None:
    """Return what a zone reads; None: no whole number."""
    return int(temp) if temp is not None and re.fullmatch(r"\s*-?\d{1,9}\s*", temp) else None


def zone_figures(zone: Mapping[str, Any], raw: int | None, roles: Sequence[str]) -> dict[str, Any]:
    """Return the place of a zone by its name; without a known one it shows its captured value."""
    figures: dict[str, Any] = {"number": zone["number"], "type": zone["type"], "node": "body"}
    plain = zone["type"].lower().replace("-", "_")
    node = next((node for word, node in _WORDS if word in plain), None)
    is_dead = any(word in plain for word in _DEAD_WORDS)
    alive = raw is not None and (10 < raw < 100 or 100 < raw < 1000 or 10_000 < raw < 100_000)
    if raw is None or node is None or is_dead or not alive:
        return {**figures, "frozen_mc": raw or 0}
    return {
        **figures,
        "node": node,
        "per_degree": 1000 if raw >= 10_000 else 10 if raw > 100 else 1,
        "hotspot_k_per_w": 1.5 if node == "die" else 0.0,
        "cluster": roles[-1] if node == "die" else None,
    }
