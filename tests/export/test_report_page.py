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
from orchestrator.export.report.figure import build_axis
from orchestrator.export.report.page import render_page as render_report
from orchestrator.export.report.report_data import ReportInput, SweepRecord
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
    *("findings", "figures", "cells", "heat", "operations", "left-out", "conditions", "clocks"),
    *("phones", "variance", "provenance", "repeat"),
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
    saved = [(rest, kind) for rest, kind in links if not kind.startswith("#")]
    assert all(kind == "data:" and "download=" in rest for rest, kind in saved)


def test_every_tag_is_closed() -> None:
    tags = Tags(whole_page())
    assert (tags.open, tags.mismatched) == ([], [])


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_with_data_is_shown(section: str) -> None:
    page = whole_page()
    assert f'<section id="{section}"' in page
    assert f'<a href="#{section}">' in page, "the table of contents has it"


def test_every_drawn_coordinate_is_a_number() -> None:
    page = whole_page()
    paths = re.findall(r' d="([^"]*)"', page)
    assert all(re.fullmatch(r"M-?[\d.]+ -?[\d.]+(L-?[\d.]+ -?[\d.]+)*Z?", path) for path in paths)
    coordinates = re.findall(r' (?:x|y|cx|cy|width|height)="([^"]*)"', page)
    assert all(re.fullmatch(r"-?\d+(\.\d)?", coordinate) for coordinate in coordinates)
    assert len(coordinates) > 500


def test_a_section_without_data_is_left_out() -> None:
    page = render_page("demo", [measured("a")])
    assert all(f'id="{name}"' not in page for name in ("heat", "operations", "figures"))
    assert "Every run counts." in page


def test_a_simulation_is_marked_in_the_head_and_in_every_figure() -> None:
    page = whole_page(provenance=FITTED)
    assert "<title>demo (simulated)</title>" in page
    assert '<b class="warn">simulated phones</b>' in page
    assert "The simulation errs by up to 10 %." in page
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    assert len(figures) > 5
    for figure in figures:
        assert "SIMULATED phones · Farmhand 9.8.7 · sw-00000001</text>" in figure
        saved = re.findall(r'svg\+xml;charset=utf-8;base64,([^"]*)"', figure)[0]
        assert "SIMULATED phones" in base64.b64decode(saved).decode()


def test_the_first_screen_has_the_question_its_answer_a_figure_and_a_table() -> None:
    head = whole_page().partition("<nav")[0]
    assert "<h1>Does the fastest phone stay fastest?</h1>" in head
    assert "<b>No.</b> Cold, Model a leads with 20.0 ms per step." in head
    assert "After ten minutes, Model b leads with 44.0 ms, and Model a, which was first" in head
    assert head.count("<svg") == 2, "one for wide and one for narrow screens"
    assert head.count("<table>") == 1
    words = re.sub("<svg.*?</svg>|<[^>]*>", " ", head.partition("<main>")[2], flags=re.DOTALL)
    assert len(words.split()) < 100


def test_measurements_have_no_banner() -> None:
    body = render_page("demo", fleet()).partition("<main>")[2]
    assert "imulat" not in body
    assert '<b class="">measured on phones</b>' in body


def test_some_simulated_numbers_are_marked_too() -> None:
    runs = [*fleet(), measured("z", provenance=EXTRAPOLATED)]
    page = render_page("demo", runs, mix=True)
    assert "measured on phones and simulated phones" in page
    assert "The error of the simulation is unknown: this is no claim about real phones." in page


def test_every_value_has_three_digits() -> None:
    table = re.sub("<[^>]*>", " ", whole_page().partition("<tbody>")[2].partition("</tbody>")[0])
    values = re.findall(r"\d[\d.]*", table)
    assert len(values) == 8
    assert all(len(value.replace(".", "").lstrip("0")) == 3 for value in values)


def test_a_slow_gauge_gives_no_energy() -> None:
    slow = [
        measured("a", 1.0, repeat=repeat, energy_per_sample_mj=0.1, grade="coarse")
        for repeat in (0, 1)
    ]
    precise = [
        measured(serial, at, repeat=repeat, energy_per_sample_mj=0.2 * at)
        for serial, at in (("b", 2.0), ("c", 3.0))
        for repeat in (0, 1)
    ]
    page = render_page("demo", slow + precise)
    energy = page.partition("Model b needs the least energy</h2>")[2].partition("</figure>")[0]
    assert "Model b" in energy
    assert "Model a" not in energy
    cells = page.partition('<section id="cells">')[2].partition("</section>")[0]
    assert "gauge too coarse" in cells.partition("Model a")[2].partition("</tr>")[0]


def test_phones_of_one_model_share_a_panel_with_their_spread() -> None:
    runs = [
        measured(serial, step_ms, repeat=repeat, facts=phone(serial, model=model), **settings)
        for serial, model, step_ms in (("a", "One", 1.0), ("b", "One", 1.2), ("c", "Two", 3.0))
        for settings in ({"workload": "mlp-3"}, {"workload": "mlp-4"})
        for repeat in range(4)
    ]
    page = render_page("demo", runs)
    figure = page.partition('<section id="figures">')[2].partition("</figure>")[0]
    assert re.findall(r'class="name">([^<]*)<', figure) == ["One", "Two"]
    assert "Phones of one model differ by up to 20 %" in page
    assert "1.00 to 1.20" in page.partition('<section id="cells">')[2]


def test_a_fleet_of_thirty_phones_fits_a_mail() -> None:
    runs = [
        run
        for index in range(30)
        for workload in ("mlp-3", "mlp-4", "lenet")
        for freq in ("low", "mid", "high")
        for repeat in range(2)
        for run in (
            measured(
                *(f"p{index}", 1.0 + index / 7),
                repeat=repeat,
                workload=workload,
                condition={"freq": freq},
                energy_per_sample_mj=0.2 + index / 30,
            ),
        )
    ]
    assert len(render_page("demo", runs).encode()) < 1_000_000


def test_ticks_do_not_overlap() -> None:
    for values in ([4.84, 4.9], [1291.0, 1327.0], [0.579, 0.58], [1.0, 900.0]):
        axis = build_axis("MB", values, log=True)
        coordinates = [axis.position(tick, 0.0, 186.0) for tick in axis.ticks]
        assert len(coordinates) >= 2
        assert all(after - before > 12 for before, after in pairwise(coordinates))


def test_the_gpu_is_compared_with_the_cpu() -> None:
    fast = measured("a", 10.0)
    gpu_run = replace(fast, case=fast.case.model_copy(update={"backend": "opencl"}))
    page = render_page("demo", [measured("a", 30.0), gpu_run])
    assert "<h1>Does the GPU pay?</h1>" in page
    assert "On every phone a step takes 3.00 times as long on the CPU as on the GPU." in page


def test_the_page_says_what_was_measured_and_how() -> None:
    reason = Reason.void(ReasonCode.CLOCKS_NOT_PINNED, share=0.5)
    void = measured("a", validity=Validity.VOID, reasons=(reason,))
    page = render_page("demo", [*fleet(), void])
    for text in (
        "demo · 65 runs, 64 valid · 4 phones · 1 Mar 2026",
        "What was left out (1)",
        reason.text,
        "endurance big4 high",
        "at most 3 K above the phone",
        "Split-half check",
        "A round of three takes 1.33 times its cold plan",
        "Heat costs 1 % to 300 %",
    ):
        assert text in page


def test_runs_that_do_not_count_give_the_page_no_values() -> None:
    suspect = measured("a", repeat=1, peak_temp_c=91.0, validity=Validity.SUSPECT)
    page = render_page("demo", [measured("a", peak_temp_c=47.0), suspect])
    fleet_table = page.partition('<section id="phones">')[2].partition("</section>")[0]
    assert "1 of 2" in fleet_table
    assert ">47.0 °C<" in fleet_table
    assert "91" not in fleet_table
    sources = page.partition('<section id="provenance">')[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", sources, re.DOTALL)
    assert sorted(re.findall(r">(\d+)<", "".join(rows))) == ["1", "1"]


def test_a_page_without_runs_has_no_answer() -> None:
    page = render_page("demo", [])
    assert "demo · no runs" in page
    assert "<figure" not in page


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
            assert (ground == "rgb(17, 24, 39)") is dark
            shown = "getComputedStyle(document.querySelector('svg .tick')).fill"
            assert browser.run(shown) == ("rgb(156, 163, 175)" if dark else "rgb(107, 114, 128)")
            narrow = "getComputedStyle(document.querySelector('svg.narrow')).display"
            assert browser.run(narrow) == ("block" if width == 390 else "none")
            wide = (
                "[...document.querySelectorAll('svg')].map((e) => e.getBoundingClientRect().right)"
            )
            assert max(browser.run(wide)) <= width, "no panel is cut"
            picture = tmp_path / f"{width}.png"
            browser.picture(picture)
            assert picture.stat().st_size > 20_000, "the picture is empty"
        paper = browser.call("Page.printToPDF")["data"]
        assert len(base64.b64decode(paper)) > 20_000
        assert browser.console == []


@pytest.mark.slow
@needs_browser
def test_a_saved_figure_is_an_image_by_itself(tmp_path: Path) -> None:
    link = re.findall(r'href="data:image/svg\+xml;charset=utf-8;base64,([^"]*)"', whole_page())[0]
    (tmp_path / "figure.svg").write_bytes(base64.b64decode(link))
    with open_browser(tmp_path / "profile") as browser:
        browser.open((tmp_path / "figure.svg").as_uri())
        fill = "getComputedStyle(document.querySelector('.tick')).fill"
        assert browser.run(fill) == "rgb(107, 114, 128)"
        browser.picture(tmp_path / "figure.png")
        assert browser.console == []
    assert (tmp_path / "figure.png").stat().st_size > 5_000
