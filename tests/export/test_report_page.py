"""The report page: no network access, hostile text is escaped, simulated numbers are marked."""

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from orchestrator.analysis.measurements import IncompatibleSources, MeasuredRun
from orchestrator.export.report.page import render_page as render_report
from orchestrator.export.report.report_data import ReportInput, SweepRecord
from orchestrator.export.report.svg import build_axis
from tests.analysis.builders import EXTRAPOLATED, FITTED, endurance, measured, phone
from tests.browser import needs_browser, open_browser
from tests.export.telemetry_blob import a_blob
from workloads.protocol.phone_facts import ControlLevel
from workloads.protocol.telemetry import read_telemetry
from workloads.protocol.verdict import Reason, ReasonCode, Validity

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><style>*{display:none}</style>',
    "{{ 7 * 7 }}",
    "'; background:url(http://evil)",
]
SECTIONS = (
    *(
        "axes",
        "matrix",
        "heat",
        "ranking",
        "pareto",
        "traces",
        "operations",
        "step",
        "processors",
    ),
    *("fleet", "validity", "variance", "conditions", "clocks", "provenance", "repeat"),
)


def render_page(
    title: str, runs: Sequence[MeasuredRun], telemetry: Sequence[Any] = (), **more: Any
) -> str:
    """Render the page of some runs."""
    return render_report(title, ReportInput(runs, telemetry, **more))


class Tags(HTMLParser):
    """Collects the tags and attributes that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            self.mismatched.append(tag)


def fleet(**changes: Any) -> list[MeasuredRun]:
    """Build runs of four phones, cold and hot, at two batch sizes, for every section."""
    times = {"a": (10.0, 40.0), "b": (20.0, 22.0), "c": (30.0, 31.0), "d": (36.0, 36.5)}
    figures = {"energy_per_sample_mj": 0.4, "samples_per_s": 900.0, "peak_rss_mb": 12.0}
    return [
        run
        for serial, (cold, hot) in times.items()
        for repeat in range(4)
        for size in (32, 64)
        for case in ({"parameters": {"batch_size": size}},)
        for run in (
            measured(
                *(serial, cold * size / 32),
                **{"repeat": repeat, "copy_share": 0.1, **case, **figures, **changes},
            ),
            endurance(serial, hot * size / 32, repeat=repeat, **case, **changes),
        )
    ]


@functools.cache
def whole_page(**changes: Any) -> str:
    """Render a page with every section."""
    runs = fleet(**changes)
    traced = [(run, read_telemetry(a_blob())) for run in runs if run.repeat == 0]
    record = SweepRecord("sw-1", "demo", "farm: 1\nname: demo\n", 7)
    return render_page("demo", runs, traced, sweeps=[record], version="9.8.7")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_adds_neither_tags_nor_attributes(name: str) -> None:
    def page_of(model: str) -> str:
        facts = phone("a", model=model, soc=model, android=model, uncontrolled=(model,))
        reason = Reason.void(ReasonCode.COOLING_DEVICE_ACTIVE, name=model[:120])
        voided = measured("a", facts=facts, validity=Validity.VOID, reasons=(reason,))
        runs = [measured("a", facts=facts), endurance("a", 9.0, facts=facts), voided]
        return render_page(model, runs, [(run, read_telemetry(a_blob())) for run in runs])

    harmless, hostile = (Tags(page_of(each)) for each in ("Pixel", name))
    assert harmless.tags == hostile.tags
    assert harmless.attributes == hostile.attributes
    assert f"<h1>{escape(name)}</h1>" in render_page(name, [])


def test_the_page_has_a_strict_content_security_policy() -> None:
    page = whole_page(provenance=FITTED)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    (content,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    tags = Tags(page)
    assert {"link", "img", "iframe", "form", "script", "base"}.isdisjoint(tags.tags)
    assert {"src", "style", "onclick", "onload", "onerror"}.isdisjoint(tags.attributes)
    assert re.findall(r"https?://|url\(|@import|src=", page) == []
    links = re.findall(r'<a ([^>]*)href="([^"]{5})', page)
    assert all(kind == "data:" and "download=" in rest for rest, kind in links)


def test_every_tag_is_closed() -> None:
    tags = Tags(whole_page())
    assert (tags.open, tags.mismatched) == ([], [])


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_with_data_is_shown(section: str) -> None:
    page = whole_page()
    assert f'<section id="{section}">' in page
    assert 'id="not-shown"' not in page


def test_every_drawn_coordinate_is_a_number() -> None:
    page = whole_page()
    for points in re.findall(r'points="([^"]*)"', page):
        assert all(re.fullmatch(r"-?[\d.]+,-?[\d.]+", pair) for pair in points.split())
    assert all(re.fullmatch(r"M[-\d. az]+", path) for path in re.findall(r' d="([^"]*)"', page))
    coordinates = re.findall(r' (?:x|y|x1|x2|y1|y2|width|height)="([^"]*)"', page)
    assert all(re.fullmatch(r"-?\d+(\.\d)?", coordinate) for coordinate in coordinates)
    assert len(coordinates) > 500


def test_a_section_without_data_is_replaced_by_a_sentence() -> None:
    page = render_page("demo", [measured("a")])
    assert "Burst and sustained: No phone has both" in page
    assert "Operations of a step: No run was traced." in page
    assert "Results over the axes of the sweep: All valid runs have the same parameters" in page


def test_a_simulation_has_a_banner_and_a_marked_title() -> None:
    page = render_page("demo", fleet(provenance=FITTED))
    sentence = "These numbers come from a simulation; they are not measurements of any phone."
    assert sentence in page
    assert "<title>demo (simulated)</title>" in page
    assert "Fitted models err by up to 10%" in page
    assert page.index(sentence) < page.index("Which phone is fastest when cold?")


def test_measurements_have_no_banner() -> None:
    body = render_page("demo", fleet()).partition("<main>")[2]
    assert 'class="banner"' not in body
    assert "imulat" not in body


def test_some_simulated_numbers_have_a_banner_too() -> None:
    runs = [*fleet(), measured("z", provenance=EXTRAPOLATED)]
    page = render_page("demo", runs, mix=True)
    assert "Some of these numbers come from a simulation" in page
    assert "Extrapolated models have an unknown error" in page


def test_every_tooltip_has_the_source_of_its_number() -> None:
    page = whole_page(provenance=FITTED)
    tips = re.findall(r"<(?:rect|path)[^>]*><title>([^<]*)</title>", page)
    figures = [tip for tip in tips if "ms" in tip.split() or "mJ" in tip.split()]
    assert len(figures) > 20
    assert all("simulated (fitted" in tip for tip in figures)


def test_bars_are_drawn_to_scale() -> None:
    page = render_page("demo", [measured("a", 10.0), measured("b", 40.0)])
    ranking = page.partition('<section id="ranking">')[2].partition("</section>")[0]
    short, long = (float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', ranking))
    assert long / short == pytest.approx(4, rel=0.01)


def test_the_best_phone_for_every_model_is_marked() -> None:
    matrix = whole_page().partition('<section id="matrix">')[2].partition("</table>")[0]
    first = re.findall(r'<tr data-phone="(.)">.*?</tr>', matrix, re.DOTALL)[0]
    assert first == "a"
    assert matrix.count("★ best") == 2


def test_a_slow_gauge_is_neither_best_nor_on_the_pareto_front() -> None:
    slow = [
        measured("a", 1.0, repeat=repeat, energy_per_sample_mj=0.1, grade="coarse")
        for repeat in (0, 1)
    ]
    precise = [
        measured(serial, 2.0, repeat=repeat, energy_per_sample_mj=0.4, grade="gauge")
        for serial in "bc"
        for repeat in (0, 1)
    ]
    page = render_page("demo", slow + precise)
    energy = page.partition("Cold: energy per sample")[2].partition("</table>")[0]
    row = energy.partition('<tr data-phone="a">')[2].partition("</tr>")[0]
    assert "gauge too slow" in row
    assert "★" not in row
    assert "too slow for the run: Model a." in page
    assert "Model a" not in page.partition("On the Pareto front")[2].partition("<svg")[0]


def test_a_missing_cell_has_a_reason() -> None:
    warm = Reason.suspect(ReasonCode.BODY_WARMED, rise_c=4.0)
    large = {"batch_size": 64}
    runs = [measured(name, parameters=size) for name in ("a", "b") for size in ({}, large)]
    runs += [measured("d"), measured("c", validity=Validity.SUSPECT, reasons=(warm,))]
    runs += [measured("c", None, parameters=large, peak_rss_mb=9.0)]
    matrix = render_page("demo", runs).partition("Cold: step time")[2].partition("</table>")[0]
    rows = {
        row.partition('data-phone="')[2][0]: row for row in matrix.split("<tr ") if "phone" in row
    }
    assert f'title="1 suspect run does not count; most often: {warm.text}"' in rows["c"].replace(
        "&#39;", "'"
    )
    assert "1 suspect<" in rows["c"]
    assert "not reported<" in rows["c"]
    assert "not run<" in rows["d"]


def test_many_cells_are_summarised_by_model() -> None:
    runs = [
        measured(serial, step_ms * size, workload=workload, parameters={"batch_size": size})
        for serial, step_ms in (("a", 3.0), ("b", 1.0), ("c", 2.0))
        for workload in ("mlp-4", "mlp-3")
        for size in (8, 16, 32, 64)
    ]
    summary = render_page("demo", runs).partition("step time, by model")[2]
    summary = summary.partition("</table>")[0]
    assert re.findall(r'<tr data-phone="(.)">', summary) == ["b", "c", "a"]
    assert re.findall(r'<th scope="col" data-workload="([^"]*)"', summary) == ["mlp-3", "mlp-4"]
    assert summary.count("mean of 4 cells") == 2
    assert "22.6" in summary, "the geometric mean of 8, 16, 32 and 64"


def test_ticks_do_not_overlap() -> None:
    for values in ([4.84, 4.9], [1291.0, 1327.0], [0.579, 0.58], [1.0, 900.0]):
        axis = build_axis("MB", values, log=True)
        coordinates = [axis.position(tick, 0.0, 186.0) for tick in axis.ticks]
        assert len(coordinates) >= 2
        assert all(after - before > 12 for before, after in pairwise(coordinates))


def test_cells_are_sorted_by_number() -> None:
    runs = [measured("a", parameters={"batch_size": size}) for size in (256, 32, 8)]
    matrix = render_page("demo", runs).partition("Cold: step time")[2].partition("</thead>")[0]
    assert re.findall(r"batch_size=(\d+)", matrix) == ["8", "32", "256"]


def test_the_gpu_is_compared_with_the_cpu() -> None:
    fast = measured("a", 10.0)
    gpu_run = replace(fast, case=fast.case.model_copy(update={"backend": "opencl"}))
    runs = [measured("a", 30.0), gpu_run]
    page = render_page("demo", runs)
    assert "CPU time / GPU time" in page
    assert "3.00 ×" in page


def test_the_page_has_findings_validity_conditions_and_phones() -> None:
    reason = Reason.void(ReasonCode.CLOCKS_NOT_PINNED, share=0.5)
    void = measured("a", validity=Validity.VOID, reasons=(reason,))
    page = render_page("demo", [*fleet(), void])
    for text in (
        "When cold, Model a is fastest with 14.1 ms per step",
        "After ten minutes of heat, Model b is fastest",
        "Take Model b, Model c and Model d",
        "64 valid, 0 suspect and 1 void of 65 runs",
        reason.text,
        "endurance big4 high",
        "at most 32 °C",
        "65 runs on 4 phones",
        "Split-half check",
    ):
        assert text in page


def test_runs_that_do_not_count_give_the_page_no_values() -> None:
    suspect = measured("a", repeat=1, peak_temp_c=91.0, validity=Validity.SUSPECT)
    page = render_page("demo", [measured("a", peak_temp_c=47.0), suspect])
    fleet_table = page.partition('<section id="fleet">')[2].partition("</section>")[0]
    assert "1 of 2" in fleet_table
    assert ">47 °C<" in fleet_table
    assert "91" not in fleet_table
    sources = page.partition('<section id="provenance">')[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", sources, re.DOTALL)
    assert sorted(re.findall(r">(\d+)<", "".join(rows))) == ["1", "1"]


def test_a_page_without_runs_names_what_is_missing() -> None:
    assert "No phone can be ranked first: there is no valid cold run" in render_page("demo", [])


def test_mixed_control_levels_are_refused() -> None:
    runs = [measured("a"), measured("b", control=ControlLevel.OBSERVED)]
    with pytest.raises(IncompatibleSources):
        render_page("demo", runs)
    assert "Model b" in render_page("demo", runs, mix=True)


@pytest.mark.slow
@needs_browser
def test_a_browser_shows_the_page_on_every_screen(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(whole_page(provenance=FITTED), encoding="utf-8")
    with open_browser(tmp_path / "profile") as browser:
        for width, dark in product((390, 1280), (False, True)):
            browser.size(width, 2000, dark)
            browser.open(page.as_uri())
            assert browser.run("document.documentElement.scrollWidth") <= width
            ground = browser.run("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(21, 24, 28)") is dark
            shown = "getComputedStyle(document.querySelector('svg .title')).fill"
            assert browser.run(shown) == ("rgb(154, 164, 174)" if dark else "rgb(93, 102, 112)")
            picture = tmp_path / f"{width}.png"
            browser.picture(picture)
            assert picture.stat().st_size > 20_000, "the picture is empty"
        browser.run("document.querySelector('#phone').selectedIndex = 1")
        marks = "[...document.querySelectorAll('[data-phone=b]')]"
        assert set(browser.run(f"{marks}.map((e) => getComputedStyle(e).opacity)")) == {"0.13"}
        assert browser.console == []


@pytest.mark.slow
@needs_browser
def test_a_saved_figure_is_an_image_by_itself(tmp_path: Path) -> None:
    link = re.findall(r'href="data:image/svg\+xml;charset=utf-8;base64,([^"]*)"', whole_page())[0]
    (tmp_path / "figure.svg").write_bytes(base64.b64decode(link))
    with open_browser(tmp_path / "profile") as browser:
        browser.open((tmp_path / "figure.svg").as_uri())
        fill = "getComputedStyle(document.querySelector('text')).fill"
        assert browser.run(fill) == "rgb(29, 33, 38)"
        browser.picture(tmp_path / "figure.png")
        assert browser.console == []
    assert (tmp_path / "figure.png").stat().st_size > 5_000
