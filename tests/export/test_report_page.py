"""The report page is closed to the network, deaf to what phones call themselves, and honest."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from markupsafe import escape

from orchestrator.export.page import render_page
from orchestrator.nouns import MeasuredRun
from tests.analysis.builders import EXTRAPOLATED, FITTED, endurance, measured, phone
from workloads.fault import Refused
from workloads.measure import Standing
from workloads.phone import ControlLevel

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><style>*{display:none}</style>',
    "{{ 7 * 7 }}",
    "'; background:url(http://evil)",
]


class Tags(HTMLParser):
    """Lists what a browser would see."""

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
    times = {"a": (10.0, 40.0), "b": (20.0, 22.0), "c": (30.0, 31.0), "d": (36.0, 36.5)}
    return [
        run
        for serial, (cold, hot) in times.items()
        for repeat in range(4)
        for run in (
            measured(serial, cold, repeat=repeat, **changes),
            endurance(serial, hot, repeat=repeat, **changes),
        )
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_adds_nothing_to_the_page_but_text(name: str) -> None:
    def runs_of(model: str) -> list[MeasuredRun]:
        facts = phone("a", model=model, soc=model, android=model, uncontrolled=(model,))
        voided = measured("a", facts=facts, standing=Standing.VOID, reasons=(model,))
        return [measured("a", facts=facts), endurance("a", 9.0, facts=facts), voided]

    harmless, hostile = (Tags(render_page(each, runs_of(each))) for each in ("Pixel", name))
    assert harmless.tags == hostile.tags
    assert harmless.attributes == hostile.attributes
    assert f"<h1>{escape(name)}</h1>" in render_page(name, [])


def test_the_page_is_closed() -> None:
    page = render_page("demo", fleet(provenance=FITTED))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page
    tags = Tags(page)
    assert {"script", "link", "img", "iframe", "form", "a", "base"}.isdisjoint(tags.tags)
    assert {"src", "href", "onclick", "onload", "onerror"}.isdisjoint(tags.attributes)
    assert re.findall(r"https?://|url\(|@import|src=", page) == []


def test_every_tag_is_closed_in_its_order() -> None:
    tags = Tags(render_page("demo", fleet()))
    assert ([], []) == (tags.open, tags.mismatched)


def test_a_simulation_opens_with_a_banner_and_wears_it_in_its_title() -> None:
    page = render_page("demo", fleet(provenance=FITTED))
    sentence = "These numbers come from a simulation; they are not measurements of any phone."
    assert sentence in page
    assert "<title>demo (simulated)</title>" in page
    assert "Fitted models err by up to 10%" in page
    assert page.index(sentence) < page.index("Who is fastest cold?")


def test_measurements_have_no_banner_and_nothing_that_looks_simulated() -> None:
    body = render_page("demo", fleet()).partition("<main>")[2]
    assert 'class="banner"' not in body
    assert "bar simulated" not in body
    assert "dot simulated" not in body


def test_a_few_simulated_numbers_among_measured_ones_are_announced_too() -> None:
    page = render_page("demo", [*fleet(), measured("z", provenance=EXTRAPOLATED)], mix=True)
    assert "Some of these numbers come from a simulation" in page
    assert "Extrapolated models have an unknown error" in page


def test_an_interval_is_not_drawn_where_the_error_is_unknown() -> None:
    known = render_page("demo", [measured("a", provenance=FITTED)])
    unknown = render_page("demo", [measured("a", provenance=EXTRAPOLATED)])
    assert 'class="span"' in known
    assert 'class="span"' not in unknown
    assert "error unknown</span>" in unknown


def test_bars_and_intervals_are_drawn_to_scale() -> None:
    page = render_page("demo", [measured("a", 10.0), measured("b", 40.0)])
    expected = ["25.0", "100.0"]
    assert expected == re.findall(r'class="bar" style="width:([\d.]+)%"', page)


def test_cold_and_hot_are_drawn_for_every_phone_that_has_both() -> None:
    page = render_page("demo", [*fleet(), measured("only-cold", 5.0)])
    expected = ["55.0", "77.5", "91.25", "100.0"]
    assert expected == re.findall(r'class="dot after" style="left:([\d.]+)%"', page)


def test_the_page_holds_findings_validity_conditions_and_phones() -> None:
    void = measured("a", standing=Standing.VOID, reasons=("the clock fell",))
    page = render_page("demo", [*fleet(), void])
    for words in (
        "Cold, Model a is fastest with 10.0 ms a step",
        "After ten minutes of heat, Model b is fastest",
        "Take Model b, Model c and Model d",
        "32 valid, 0 suspect and 1 void of 33 runs",
        "void: the clock fell",
        "endurance big4 high",
        "at most 32 °C",
        "33 runs on 4 phones",
    ):
        assert words in page


def test_a_page_of_no_runs_says_what_is_missing() -> None:
    assert "Nobody can be named: there is no valid cold run" in render_page("demo", [])


def test_a_mixture_is_refused_as_everywhere() -> None:
    runs = [measured("a"), measured("b", control=ControlLevel.OBSERVED)]
    with pytest.raises(Refused, match="the mixture is meant"):
        render_page("demo", runs)
    assert "Model b" in render_page("demo", runs, mix=True)
