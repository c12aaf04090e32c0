"""Virtual phones from facts files: the layout of a captured phone, the physics of a similar model.

The layouts of the project's own models are facts files too; their physics is in the profiles.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path
from typing import Any

from agent.virtual.files.file_nodes import constant_node
from agent.virtual.files.file_tree import FileTree
from agent.virtual.layouts import raw_number, read_facts, zone_figures
from agent.virtual.profiles import (
    ClusterProfile,
    GpuProfile,
    LayoutProfile,
    PhoneProfile,
    ServiceProfile,
    ThrottleProfile,
    ZoneProfile,
    load_profile,
    profile_ids,
)

_SUFFIX = ".toml"
_ROLES = ("little", "mid", "big", "prime")
_ROLES_OF = {1: (2,), 2: (0, 2), 3: (0, 2, 3), 4: (0, 1, 2, 3)}
_CPU = "/sys/devices/system/cpu"
_POWER, _SUPPLIES = "/sys/class/power_supply", ("battery", "Battery", "bms")
_BATTERY_LEAVES = (
    *("capacity", "status", "temp", "current_now", "voltage_now", "charge_counter", "charge_full"),
    *("charge_full_design", "cycle_count", "health", "input_suspend", "charging_enabled"),
)


def is_facts_file(name: str) -> bool:
    """Whether a name is the path of a facts file; a profile has no `schema`."""
    if not name.endswith(_SUFFIX):
        return False
    try:
        return "schema" in tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def read_layout(path: Path) -> PhoneProfile:
    """Read a facts file into the profile of a virtual phone."""
    facts = read_facts(path)
    try:
        return _profile(facts, re.sub(r"[^a-z0-9-]+", "-", path.stem.lower()))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is not a complete facts file: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from None


def apply_layout(tree: FileTree, layout: LayoutProfile) -> None:
    """Add the nodes that only the captured phone has, and hide those that its shell cannot read."""
    add_missing_nodes(tree, layout.texts, layout.dead)
    for path in layout.unreadable:
        if tree.exists(path):
            tree.resolve(path)[0].selinux_denied = True


def add_missing_nodes(tree: FileTree, texts: Mapping[str, str], dead: Sequence[str] = ()) -> None:
    """Add nodes that the models do not have; those that are dead replace the model's."""
    for path, text in texts.items():
        if path in dead or not tree.exists(path):
            _, canonical = _locate(tree, path)
            tree.add_node(canonical, constant_node(text))


def _locate(tree: FileTree, path: str) -> tuple[bool, str]:
    """Whether a node exists, and its path with the symbolic links above it resolved."""
    if tree.exists(path):
        return True, tree.resolve(path)[1]
    parent, _, name = path.rpartition("/")
    return False, f"{_locate(tree, parent)[1] if parent else ''}/{name}"


def _profile(facts: Mapping[str, Any], name: str) -> PhoneProfile:
    properties: dict[str, str] = facts["properties"]
    nodes: dict[str, str] = facts.get("nodes", {})
    clocks, per_core = _clocks(facts)
    present = _cpu_list(nodes.get(f"{_CPU}/present", "")) or list(chain(*clocks))
    offline = tuple(sorted({*present} - {cpu for cpus in clocks for cpu in cpus}))
    parts = clocks | dict.fromkeys(_groups(offline, nodes), ())
    base = _similar_model(len(parts), max(max(at) for at in clocks.values()))
    cluster = _clusters(base, parts, nodes)
    zones, dead = _zones(facts, base, [part.role for part in cluster])
    texts = {path: text if text.endswith("\n") else f"{text}\n" for path, text in nodes.items()}
    service = facts.get("thermalservice")
    sdk = re.match(r"\d+", properties.get("ro.build.version.sdk", ""))
    memory = re.search(r"MemTotal:\s+(\d+)", nodes.get("/proc/meminfo", ""))
    update = {
        "id": name,
        "name": str(facts["name"]),
        "serial_prefix": "VCAP",
        "soc": properties.get("ro.soc.model", ""),
        "rooted": facts.get("root", "none") == "su",
        "android": properties.get("ro.build.version.release", base.android),
        "sdk": int(sdk[0]) if sdk else base.sdk,
        "build": base.build | properties | _root_build(facts),
        "services": (*facts.get("services", ()), "surfaceflinger", "zygote", "adbd"),
        "kernel": base.kernel.model_copy(
            update={
                "cpufreq": "cores" if per_core else "policies",
                "shows_capacity": any(path.endswith("/cpu_capacity") for path in nodes),
            }
        ),
        "cluster": cluster,
        "zone": zones or base.zone,
        "cooling": tuple(
            at for at in base.cooling if at.cluster in {part.role for part in cluster}
        ),
        "throttle": _throttles(base, zones, [part.role for part in cluster]),
        "gpu": _gpu(base, nodes),
        "battery": base.battery.model_copy(update={"supply": _supply({*nodes})}),
        "rails": "odpm" if "power_stats" in facts else None,
        "levels": {},
        "fitted": None,
        "sources": tuple(facts.get("sources", ())) or ("a facts file",),
        "layout": LayoutProfile(
            offline=offline,
            texts=texts | dead,
            dead=tuple(dead),
            unreadable=(
                *facts.get("unreadable", ()),
                *([] if zones else _hidden_zones(base)),
                *_hidden_battery_nodes({*nodes, *facts.get("writable", ())}),
            ),
            service=None if service is None else ServiceProfile.model_validate(service),
        ),
    }
    if memory:
        available = base.memory.available_kb * int(memory[1]) // base.memory.total_kb
        figures = {"total_kb": int(memory[1]), "available_kb": available}
        update["memory"] = base.memory.model_copy(update=figures)
    return PhoneProfile.model_validate(base.model_dump() | _dumped(update))


def _dumped(update: Mapping[str, Any]) -> dict[str, Any]:
    def dump(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(dump(item) for item in value)
        return value.model_dump() if hasattr(value, "model_dump") else value

    return {key: dump(value) for key, value in update.items()}


def _root_build(facts: Mapping[str, Any]) -> dict[str, str]:
    is_debuggable = facts.get("root") == "adb"
    return {"ro.debuggable": "1", "ro.build.type": "userdebug"} if is_debuggable else {}


def _clocks(facts: Mapping[str, Any]) -> tuple[dict[tuple[int, ...], tuple[int, ...]], bool]:
    """Steps in kHz by cores, and whether the kernel has folders per core."""
    clocks: dict[tuple[int, ...], tuple[int, ...]] = {}
    per_core = True
    for clock in facts.get("clock", ()):
        nodes = clock["nodes"]
        cpus = tuple(_cpu_list(nodes.get("related_cpus") or nodes.get("affected_cpus", "")))
        words = f"{nodes.get('scaling_available_frequencies', '')} "
        words += nodes.get("scaling_boost_frequencies", "")
        lines = nodes.get("stats/time_in_state", "").splitlines()
        steps = [int(word) for word in words.split() if word.isdigit()]
        steps = steps or [int(line.split()[0]) for line in lines if line[:1].isdigit()]
        steps = steps or [int(word) for word in nodes.get("cpuinfo_max_freq", "").split()]
        if len(steps) == 1:  # only the highest clock is known, and physics needs two
            steps.append(steps[0] // 2)
        if cpus and steps:
            clocks.setdefault(cpus, tuple(sorted(set(steps))))
            per_core = per_core and not clock["folders"][0].startswith("cpufreq/")
    if not clocks:
        raise ValueError("no clocks are captured; a virtual phone needs them")
    return clocks, per_core


def _similar_model(clusters: int, top_khz: int) -> PhoneProfile:
    """The built-in model with the same number of clusters and the nearest highest clock."""
    models = [load_profile(name) for name in profile_ids()]

    def distance(model: PhoneProfile) -> tuple[int, int]:
        top = max(part.ladder_khz[-1] for part in model.cluster)
        return abs(len(model.cluster) - clusters), abs(top - top_khz)

    return min((model for model in models if model.tier != "board"), key=distance)


def _clusters(
    base: PhoneProfile,
    parts: Mapping[tuple[int, ...], tuple[int, ...]],
    nodes: Mapping[str, str],
) -> tuple[ClusterProfile, ...]:
    cpus = sorted(cpu for group in parts for cpu in group)
    if len(parts) > len(_ROLES) or cpus != list(range(len(cpus))):
        raise ValueError(
            "a virtual phone has up to four clusters of cores that are numbered from 0"
        )
    by_speed = sorted(parts, key=lambda group: (not parts[group], *_strength(group, parts, nodes)))
    made = {}
    for position, group in enumerate(by_speed):
        model = base.cluster[min(position, len(base.cluster) - 1)]
        ladder_khz = parts[group] or model.ladder_khz
        capacity = re.match(r"\d+", nodes.get(f"{_CPU}/cpu{group[0]}/cpu_capacity", ""))
        made[group] = model.model_copy(
            update={
                "role": _ROLES[_ROLES_OF[len(parts)][position]],
                "cpus": group,
                "ladder_khz": ladder_khz,
                "work_shares": (1.0,) * len(ladder_khz),
                "capacity": int(capacity[0]) if capacity else model.capacity,
            }
        )
    return tuple(made[group] for group in sorted(parts))


def _groups(offline: Sequence[int], nodes: Mapping[str, str]) -> list[tuple[int, ...]]:
    """Divide cores that are offline into clusters: neighbours of the same capacity."""
    groups: list[tuple[int, ...]] = []
    for cpu in offline:
        last = groups[-1] if groups else ()
        capacities = {nodes.get(f"{_CPU}/cpu{each}/cpu_capacity") for each in (*last, cpu)}
        if cpu - 1 in last and len(capacities) == 1:
            groups[-1] = (*last, cpu)
        else:
            groups.append((cpu,))
    return groups


def _strength(
    group: tuple[int, ...],
    parts: Mapping[tuple[int, ...], tuple[int, ...]],
    nodes: Mapping[str, str],
) -> tuple[int, int]:
    capacity = re.match(r"\d+", nodes.get(f"{_CPU}/cpu{group[0]}/cpu_capacity", ""))
    return int(capacity[0]) if capacity else 0, max(parts[group], default=0)


def _zones(
    facts: Mapping[str, Any], base: PhoneProfile, roles: Sequence[str]
) -> tuple[tuple[ZoneProfile, ...], dict[str, str]]:
    """The zones, and the texts of those that show no number."""
    zones, dead = [], {}
    for zone in facts.get("zone", ()):
        number = raw_number(zone.get("temp"))
        if number is None:
            path = f"/sys/devices/virtual/thermal/thermal_zone{zone['number']}/temp"
            dead[path] = zone.get("temp") or ""
        zones.append(ZoneProfile.model_validate(zone_figures(zone, number, roles)))
    return tuple(zones), dead


def _hidden_zones(base: PhoneProfile) -> list[str]:
    folder = "/sys/devices/virtual/thermal/thermal_zone"
    return [f"{folder}{at}/{leaf}" for at in range(len(base.zone)) for leaf in ("type", "temp")]


def _hidden_battery_nodes(captured: AbstractSet[str]) -> list[str]:
    """Nodes of the model's battery that the captured phone has not, or does not show."""
    paths = (f"{_POWER}/{_supply(captured)}/{leaf}" for leaf in _BATTERY_LEAVES)
    return [path for path in paths if path not in captured]


def _supply(captured: AbstractSet[str]) -> str:
    """The folder of the fuel gauge, as the vendor names it."""
    shown = (name for name in _SUPPLIES if f"{_POWER}/{name}/current_now" in captured)
    return next(shown, _SUPPLIES[0])


def _throttles(
    base: PhoneProfile, zones: Sequence[ZoneProfile], roles: Sequence[str]
) -> tuple[ThrottleProfile, ...]:
    """The model's trips, at a sensor of the same place."""
    if not zones:
        return base.throttle
    nodes = {zone.type: zone.node for zone in base.zone}
    found = {zone.node: zone.type for zone in reversed(zones) if zone.frozen_mc is None}
    return tuple(
        throttle.model_copy(
            update={
                "zone": found[nodes[throttle.zone]],
                "clusters": tuple(role for role in throttle.clusters if role in roles),
                "service": None,
            }
        )
        for throttle in base.throttle
        if nodes.get(throttle.zone) in found
    )


def _gpu(base: PhoneProfile, nodes: Mapping[str, str]) -> GpuProfile | None:
    if base.gpu is None:
        return None
    driver = "kgsl" if base.gpu.driver == "kgsl" else "mali"
    for path, text in nodes.items():
        steps = sorted({int(word) for word in text.split() if word.isdigit()})
        if path.endswith("/available_frequencies") and driver in path and steps:
            devfreq = "/devfreq/" in path  # in Hz; the GPU of Tensor has its own folder, in kHz
            ladder = tuple(step // 1000 for step in steps) if devfreq else tuple(steps)
            return base.gpu.model_copy(update={"ladder_khz": ladder, "devfreq": devfreq})
    return None


def _cpu_list(text: str) -> list[int]:
    cpus: list[int] = []
    for word in re.split(r"[\s,]+", text.strip()):
        first, _, last = word.partition("-")
        if first.isdigit() and (last or first).isdigit():
            cpus += range(int(first), min(int(last or first), 255) + 1)
    return cpus
