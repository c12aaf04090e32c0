"""Draws the curves of "How phone benchmarks lie" from the project's own data: `farm docs`.

The figures of a phone come from its model without noise, except the recorded step times, which were
measured on a phone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent.virtual.physics import phone_noise
from agent.virtual.profiles import load_profile
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from orchestrator.export.report.charts import LinePoint, LineSeries, draw_lines
from orchestrator.export.report.figure import NARROW, build_axis, legend_picture
from orchestrator.export.report.picture_files import saved_svg

FOLDER = Path(__file__).resolve().parent / "explanation" / "curves"
PHONES = {"xiaomi-mi-9": "Xiaomi MI 9", "huawei-mate-30": "HUAWEI Mate 30"}
RUN_S, EVERY_S = 600.0, 10.0
PAUSES_S = (60.0, 180.0, 1800.0)
BURST_S, BURSTS = 300.0, 8
GAUGES_S = (0.5, 8.0)
RUN_W, IDLE_W = 5.0, 1.0
STAMPS = {"model": "simulated, Farmhand", "phone": "recorded on a Meizu 16T, EMDL 2021"}
Curves = Mapping[str, Sequence[tuple[float, float]]]


def model_of(profile: str) -> OfflineModel:
    """Return a phone that trains on all cores at their highest clock."""
    return OfflineModel(load_profile(profile), bind_workload("mlp-4", 256), "all8", "high")


def ten_minutes() -> Curves:
    """Step time over ten minutes."""
    found = {}
    for profile, name in PHONES.items():
        model, points = model_of(profile), []
        for index in range(int(RUN_S / EVERY_S) + 1):
            points.append((index * EVERY_S / 60, 1000 * model.timing.seconds))
            model.advance(EVERY_S)
        found[name] = points
    return found


def pauses() -> Curves:
    """Mean step time of one run after another, with pauses of fixed length between them."""
    found = {}
    for pause_s in PAUSES_S:
        model, points = model_of("xiaomi-mi-9"), []
        for number in range(1, BURSTS + 1):
            steps = 0.0
            for _ in range(int(BURST_S / EVERY_S)):
                steps += EVERY_S / model.timing.seconds
                model.advance(EVERY_S)
            points.append((float(number), 1000 * BURST_S / steps))
            model.end_work()
            model.advance(pause_s)
            model.soc.attach(model.load)
        found[f"pause of {pause_s / 60:g} min"] = points
    return found


def clocks() -> Curves:
    """The clock that was set, and the clock that runs."""
    model = model_of("xiaomi-mi-9")
    big = next(part for part in model.soc.clusters if part.profile.role == "big")
    wanted, points = big.clock_khz / 1e6, []
    for index in range(int(RUN_S / EVERY_S) + 1):
        points.append((index * EVERY_S / 60, big.clock_khz / 1e6))
        model.advance(EVERY_S)
    return {"set": [(0.0, wanted), (RUN_S / 60, wanted)], "running": points}


def recorded() -> Curves:
    """Step times of one phone, one block of ten steps after another."""
    file = Path(phone_noise.__file__).with_name("recorded_step_times.json")
    times = json.loads(file.read_text())
    return {
        f"{kind} clocks": [
            (10.0 * index, value) for index, value in enumerate(times[kind]["batch 1"])
        ]
        for kind in ("free", "pinned")
    }


def gauges() -> Curves:
    """Largest error of a run's energy if the gauge shows a new value only now and then."""
    lengths = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    excess = 100 * (RUN_W - IDLE_W) / RUN_W
    return {
        f"gauge that updates every {gauge_s:g} s": [
            (length, excess * min(gauge_s, length) / length) for length in lengths
        ]
        for gauge_s in GAUGES_S
    }


def drawn(heading: str, x: str, y: str, curves: Curves, stamp: str, zero: bool = True) -> str:
    """Return curves as an SVG file; a curve without points is an error."""
    if not curves or any(len(points) < 2 for points in curves.values()):
        raise LookupError(f"'{heading}' has a curve without points")
    series = [
        LineSeries(name, style, [LinePoint(*point) for point in points])
        for style, (name, points) in enumerate(curves.items())
    ]
    picture = draw_lines(
        NARROW,
        heading,
        series,
        build_axis(x, _values(curves, 0), zero=True),
        build_axis(y, _values(curves, 1), zero=zero),
    )
    legend = tuple((name, f"l{style}") for style, name in enumerate(curves))
    below = legend_picture(legend, stamp, NARROW)
    picture.place(below, 0, picture.height)
    picture.height += below.height
    return saved_svg(picture, heading) + "\n"


def _values(curves: Curves, place: int) -> Iterable[float]:
    return [point[place] for points in curves.values() for point in points]


def render_curves() -> dict[str, str]:
    """Return every curve of the page, by its file's name."""
    model, phone = STAMPS["model"], STAMPS["phone"]
    minutes, step = "minutes of training", "ms per step"
    return {
        "ten-minutes": drawn("Ten seconds, and ten minutes", minutes, step, ten_minutes(), model),
        "pauses": drawn("Eight runs of five minutes, MI 9", "run", step, pauses(), model),
        "clocks": drawn("Set to the highest clock, MI 9", minutes, "GHz", clocks(), model),
        "one-run": drawn("One run of LeNet", "step", step, recorded(), phone),
        "gauges": drawn(
            "Energy by a battery gauge", "length of the run, s", "error, %", gauges(), model
        ),
    }


def write_curves() -> list[Path]:
    """Write the files that differ, and return them."""
    FOLDER.mkdir(exist_ok=True)
    changed = []
    for name, content in render_curves().items():
        file = FOLDER / f"{name}.svg"
        if not file.exists() or file.read_text() != content:
            file.write_text(content)
            changed.append(file)
    return changed
