"""The report follows the axes of a sweep, and its figures can be taken out of the page."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from orchestrator.analysis.cell_axes import CellAxis, cell_settings, varying_axes
from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.analysis.op_telemetry import OpMethod, OpRow
from orchestrator.export.report.axis_figures import PictureKind, choose_picture
from orchestrator.export.report.details import largest_ops
from orchestrator.export.report.figure import SHADES, fit_text, text_width
from orchestrator.export.report.page import (
    build_page,
    choose_figure,
    render_page,
    report_figures,
    write_figure,
)
from orchestrator.export.report.report_data import (
    ReportInput,
    collect_report_data,
    readable_unit,
)
from orchestrator.planning.states import RunState
from tests.analysis.builders import measured, phone
from workloads.protocol.faults import Blame, Fault, FaultKind, InvalidRequest
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Reason, ReasonCode, Validity

NAMES = {
    "cores": ("little2", "big1", "big4"),
    "freq": ("low", "mid", "high"),
    "batch_size": (8, 16, 32),
    "rank": (1, 2, 3, 4),
    "backend": ("cpu", "opencl"),
    "protocol": ("cold", "endurance"),
    "workload": ("lenet", "mlp-3", "mlp-4"),
    "kernel": ("naive", "tiled", "tuned"),
    "pair": (1, 2),
}


@pytest.mark.parametrize(
    ("names", "kind", "first", "second"),
    [
        (["cores", "freq"], PictureKind.GRID, "freq", "cores"),
        (["cores", "freq", "workload", "backend"], PictureKind.GRID, "freq", "cores"),
        (["batch_size"], PictureKind.LINES, "batch_size", None),
        (["batch_size", "backend"], PictureKind.LINES, "batch_size", "backend"),
        (["batch_size", "rank"], PictureKind.GRID, "rank", "batch_size"),
        (["backend"], PictureKind.DOTS, "backend", None),
        (["workload", "backend"], PictureKind.DOTS, "backend", "workload"),
        (["protocol"], PictureKind.DOTS, "protocol", None),
        (["pair"], PictureKind.DOTS, "pair", None),
        (["workload", "kernel"], PictureKind.GRID, "workload", "kernel"),
    ],
)
def test_the_picture_fits_the_axes(
    names: list[str], kind: PictureKind, first: str, second: str | None
) -> None:
    plan = choose_picture([CellAxis(name, NAMES[name]) for name in names])
    assert plan is not None
    chosen = (plan.kind, plan.first.name, plan.second.name if plan.second else None)
    assert chosen == (kind, first, second)


def test_a_setting_that_another_determines_is_not_an_axis() -> None:
    cells: list[Mapping[str, Any]] = [
        {"workload": "lenet", "classes": 10, "freq": "high"},
        {"workload": "mlp-4", "classes": 4, "freq": "low"},
        {"workload": "mlp-4", "classes": 4, "freq": "high"},
    ]
    axes = varying_axes(cells)
    assert [(axis.name, axis.values) for axis in axes] == [
        ("workload", ("lenet", "mlp-4")),
        ("freq", ("low", "high")),
    ]


def on(backend: str, run: MeasuredRun) -> MeasuredRun:
    """Move a run to a backend."""
    case = run.case.model_copy(update={"backend": backend})
    return replace(run, case=case, trial=f"{run.trial}-{backend}")


def page_of(runs: Sequence[MeasuredRun], failures: Sequence[RunOutcome] = ()) -> str:
    """Render the page of some runs."""
    return render_page("demo", ReportInput(runs, failures=failures))


def test_no_number_of_the_page_joins_two_backends() -> None:
    runs = [
        on(backend, measured(phone, step_ms, repeat=repeat, parameters={"batch_size": size}))
        for phone in "ab"
        for repeat in range(4)
        for size in (8, 16, 24, 32, 48, 64, 96)
        for backend, step_ms in (("cpu", 2.0), ("opencl", 32.0))
    ]
    page = page_of(runs)
    assert "8.00" not in page, "the geometric mean of 2 and 32"
    assert "On every phone a step takes 16.0 times as long on the GPU as on the CPU." in page


def a_core_study() -> list[MeasuredRun]:
    """Build a study of core sets and clocks in which one cell is suspect on one phone."""
    few = Reason.suspect(ReasonCode.TOO_FEW_STEPS, steps=12, wanted=20)
    suspect = {"validity": Validity.SUSPECT, "reasons": (few,)}
    return [
        measured(
            *(phone, 100.0 / (index + 1)),
            repeat=repeat,
            condition={"cores": cores, "freq": freq},
            **(suspect if (phone, cores, freq) == ("c", "little2", "low") else {}),
        )
        for phone in "abc"
        for index, cores in enumerate(("little2", "big2", "big4"))
        for freq in ("low", "mid", "high")
        for repeat in range(2)
    ]


def test_the_page_says_what_does_not_count_and_what_to_do() -> None:
    run = measured("b", condition={"cores": "all8", "freq": "low"})
    fault = Fault(
        blame=Blame.REQUEST,
        kind=FaultKind.TOO_LARGE,
        stage=Stage.RESOLVE,
        text="needs 2,832 MB, the phone has 1,900 MB",
    )
    failed = RunOutcome(
        *("tr-9", 0, 0, 0, "b", run.case, run.condition),
        *(RunState.FAILED, None, None, None, fault, ""),
    )
    page = page_of(a_core_study(), [failed])
    assert "54 runs, 52 valid" in page
    left_out = page.partition('<section id="left-out">')[2].partition("</section>")[0]
    for text in (
        "What was left out (3)",
        "Write steps_min: 20, which allows it 600 s",
        "too large: needs 2,832 MB, the phone has 1,900 MB",
        "&#39;too_large: try&#39; tries it",
    ):
        assert text in left_out
    figure = page.partition('<section id="figures">')[2].partition("</figure>")[0]
    assert figure.count(">suspect</text>") == 1
    assert figure.count(">failed</text>") == 1


def test_every_figure_can_be_saved_as_svg_and_as_csv() -> None:
    page = page_of(a_core_study())
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    assert len(figures) == 2
    for figure in figures:
        svg, table = (
            base64.b64decode(content).decode() for content in re.findall(r"base64,([^\"]*)", figure)
        )
        root = ElementTree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("width") == "85mm", "a paper's column"
        assert "var(" not in svg, "many programs that place an SVG know no variables"
        assert root.find("{http://www.w3.org/2000/svg}style") is not None
        heading, *rows = table.splitlines()
        assert rows
        assert "," in heading
    main = next(figure for figure in figures if "Step time over CPU clock" in figure)
    values = base64.b64decode(re.findall(r"base64,([^\"]*)", main)[1]).decode()
    assert values.startswith('phone,CPU clock,cores,"step time, ms",low,high,clock_ghz,')
    assert "Model c,low,little2,,,,,suspect,measured on phones" in values
    assert "GHz</text>" in main, "a clock is a number"


def test_a_figure_for_a_paper_has_its_fonts_and_its_source_inside() -> None:
    given = ReportInput(a_core_study(), version="9.8.7")
    figures = report_figures(given)
    first_screen = build_page("", collect_report_data(given)).head
    assert first_screen
    assert choose_figure(figures, "").name == first_screen.figure.name
    assert len({figure.name for figure in figures}) == len(figures)
    main = choose_figure(figures, "step-time-over-cpu-clock-and-cores")
    pdf = write_figure(main, "pdf", given)
    assert pdf.startswith(b"%PDF")
    assert b"FontFile2" in pdf
    assert b"/MediaBox [ 0 0 240.9" in pdf, "85 mm wide"
    assert write_figure(main, "png", given).startswith(b"\x89PNG")
    assert "Farmhand 9.8.7" in write_figure(main, "svg", given).decode()
    with pytest.raises(InvalidRequest, match="did you mean 'step-time-at-every-setting'"):
        choose_figure(figures, "step-time-at-any-setting")


def test_shades_differ_in_lightness() -> None:
    greys = [
        sum(w * int(colour[i : i + 2], 16) for w, i in ((0.3, 1), (0.6, 3), (0.1, 5)))
        for colour in SHADES
    ]
    assert greys == sorted(greys, reverse=True)
    assert min(a - b for a, b in pairwise(greys)) > 8


def an_op(name: str, share: float, kind: str) -> OpRow:
    """Build an operation."""
    return OpRow(
        *(name, kind, 5, share * 10, share, 0, OpMethod.NONE),
        *(None, None, None, None, {}, None, {}, None, None, {}),
    )


def test_the_ten_largest_operations_are_named_and_few_are_left() -> None:
    ops = [an_op(f"conv{i}", 0.02, "conv") for i in range(30)]
    ops += [an_op(f"norm{i}", 0.02, "norm") for i in range(20)]
    shown = largest_ops(ops)
    assert [name for name, _ in shown[:10]] == [f"conv{i}" for i in range(10)]
    assert shown[10][0] == "20 further conv"
    assert shown[11][0] == "20 further norm"
    few = largest_ops([an_op("big", 0.9, "gemm"), *(an_op(f"s{i}", 0.005, "x") for i in range(20))])
    assert few[-1] == ("others", pytest.approx(0.055))
    assert len(few) == 11


def test_a_cell_knows_all_its_settings() -> None:
    run = measured("a", condition={"start_temp_max_c": None})
    settings = cell_settings(run.case, run.condition)
    assert settings["start_temp_max_c"] == "default"
    assert settings["backend"] == "cpu"
    assert settings["batch_size"] == 32


def test_long_names_stay_apart_and_values_have_a_fitting_unit() -> None:
    model = "Xiaomi Redmi Note 12 Pro Plus 5G International Edition 256GB"
    runs = [
        measured(serial, 2e4, repeat=repeat, facts=phone(serial, model=model))
        for serial in ("serial-of-many-letters-1", "serial-of-many-letters-2")
        for repeat in range(2)
    ]
    names = list(collect_report_data(ReportInput(runs)).names.values())
    short = [fit_text(name, 200) for name in names]
    assert len(set(short)) == 2
    words = {"…", *" ".join(names).split()}
    assert all({*name.split()} <= words for name in short), "whole words remain"
    assert all(text_width(name, 11) <= 200 for name in short)
    assert readable_unit("ms", [2e4, 3e5]) == ("s", 1e-3)
    assert readable_unit("mJ", [0.01, 0.02]) == ("µJ", 1e3)
    assert readable_unit("ms", [0.01, 3e5]) == ("ms", 1.0)
