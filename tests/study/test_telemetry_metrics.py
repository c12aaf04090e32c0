"""Figures that only telemetry tells, from small blobs whose answers can be told by hand."""

from typing import Any

import pytest

from orchestrator.export.report.page import render_page
from orchestrator.export.report.study import study_section
from orchestrator.study.answers import answer
from orchestrator.study.catalogue import find_study
from orchestrator.study.evidence import evidence_of
from orchestrator.study.telemetry import TRACE_NS, figures_told
from tests.analysis.builders import HOST, measured, phone
from workloads.phone import ThermalZone

SECOND = 1_000_000_000
SKIN = ThermalZone(path="/skin", type="skin", scale=0.001)


def told(blob: dict[str, Any], **metrics: float) -> dict[tuple[str, str], float]:
    """What a blob adds to a report, by name and kind of operation."""
    run = measured("a", facts=phone("a", slow_zone=SKIN), **metrics)
    return {
        (name, str(at.get("op_kind", ""))): value for at, name, value, _ in figures_told(run, blob)
    }


def test_operations_are_told_by_kind_in_time_and_energy() -> None:
    blob = {
        "ops": {"name": ["a", "b", "c"], "kind": ["conv", "copy", "conv"]},
        "traces": [[0, 0, 0, [4 * SECOND, 6 * SECOND, 10 * SECOND]]],
        "courses": {"energy_j": {"t_ns": [0, 6 * SECOND, 10 * SECOND], "total": [0, 6, 18]}},
        "cores": 1,
    }
    found = told(blob, energy_j=18.0)
    assert (0.8, 0.2) == (found["op_share", "conv"], found["op_share", "copy"])
    assert 16 / 18 == pytest.approx(found["op_energy_share", "conv"])
    assert ("op_energy_share", "conv") not in told(blob), "no meter, no energy"


def test_the_first_step_is_held_against_the_usual_one() -> None:
    blob = {"windows": {"ns": [30, 10, 20, 10], "n": [1, 1, 2, 1]}}
    assert 3.0 == told(blob)["first_step_ratio", ""]
    assert not told({"windows": {"ns": [30], "n": [1]}}), "one step is no usual one"


def test_the_clock_settles_after_the_governor_has_woken_up() -> None:
    moments = [0, 2, 12, 240, 300]
    total = [0.0, 2.0, 22.0, 300.0, 360.0]  # asleep, then 2 a second, at last 1 a second
    course = {"t_ns": [t * SECOND for t in moments], "total": total}
    blob = {"courses": {"clock_khz_s.4": course}}
    assert 0.5 == told(blob, clock_held_share=1.0)["settled_clock_share", ""]
    assert not told(blob), "who cannot tell clocks has no such figure"


def test_the_body_is_read_when_the_study_s_trace_ended() -> None:
    moments = [*range(10), *(TRACE_NS // SECOND + more for more in (-4, -3, -2, -1, 0, 900))]
    warm = [20_000] * 10 + [31_000] * 5 + [50_000]
    readings = {"t_ns": [t * SECOND for t in moments], "paths": ["/skin"], "columns": [warm]}
    assert 11.0 == told({"readings": readings}, start_temp_c=20.0)["body_rise_c", ""]


def test_a_page_begins_with_the_claims_and_escapes_what_phones_call_themselves() -> None:
    study = find_study("tx2-predictability")
    facts = phone("a", model="<script>x</script>")
    given = {"workload": "densenet40", "facts": facts, "provenance": HOST}
    runs = [measured("a", 9.0, parameters={"batch_size": 16}, step_similarity=0.9, **given)]
    lines = answer(study, evidence_of(runs, []))
    page = render_page(study.title, runs, first=study_section(study, lines))
    assert "arXiv 1906.04278" in page
    assert page.index("Do training steps repeat") < page.index("Which phone for which model")
    assert "<script>x" not in page
    alone = render_page(study.title, [], first=study_section(study, lines))
    assert "Do training steps repeat" in alone
    assert "Nobody can be named" not in alone, "kernels alone rank no phone"
