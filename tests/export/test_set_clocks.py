"""The clocks that were set: in `farm sweep show`, on the report page and in exports."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.analysis.measurements import NOTHING_APPLIED, MeasuredRun
from orchestrator.analysis.set_clocks import (
    condition_table,
    format_cpus,
    in_order,
    planned_cell,
    same_applied_clocks,
)
from orchestrator.cli import farm
from orchestrator.export.report.page import render_page
from orchestrator.export.report.report_data import ReportInput
from orchestrator.store.database import Database
from tests.analysis.builders import measured, phone
from tests.stored_runs import store_runs
from workloads.protocol.condition import Condition
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.phone_facts import Cluster, Gpu

# On the first cluster, low and mid are the same step; on the second one they differ.
MATE = phone(
    "mate",
    model="Mate",
    clusters=(
        Cluster(policy=0, cpus=(0, 1), capacity=300, ladder_khz=(830000, 980000, 1130000, 1860000)),
        Cluster(
            policy=2,
            cpus=(2, 3),
            capacity=1024,
            ladder_khz=(710400, 825600, 940800, 1612800, 2419200),
        ),
    ),
    gpu=Gpu(name="G", folder="/g", ladder_khz=(257000, 342000, 414000, 710000), writable=True),
)
TEXT = "freq: low and mid are the same clock on Mate (little2: 1.13 GHz)"


def levels(*freqs: str, cores: str = "little2") -> list[MeasuredRun]:
    """Build three runs per level, each level a little slower than the one before."""
    return [
        measured(
            *("mate", 9.4 + 0.11 * index),
            facts=MATE,
            repeat=repeat,
            condition={"cores": cores, "freq": freq},
            energy_per_sample_mj=1.0 + index,
        )
        for index, freq in enumerate(freqs)
        for repeat in range(3)
    ]


def page_of(runs: list[MeasuredRun]) -> str:
    return render_page("clocks", ReportInput(runs))


def set_on(runs: list[MeasuredRun]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the clocks of the table, by phone and core set."""
    table = condition_table(in_order(runs))
    return {
        (phone, cores): {
            name: value
            for name, value in zip(table.columns[1:], values, strict=True)
            if name.endswith("GHz")
        }
        for phone, (cores, *values) in table.rows
    }


def test_the_table_has_the_clock_of_every_level_and_nothing_invented() -> None:
    runs = [*levels("high", "low", "mid", "free"), *levels("mid", cores="all4")]
    unset = "not run"
    assert set_on(runs) == {
        ("mate", "little2"): {"low, GHz": "1.13", "mid, GHz": "1.13", "high, GHz": "1.86"},
        ("mate", "all4"): {"low, GHz": unset, "mid, GHz": "1.13+1.6128", "high, GHz": unset},
    }
    assert list(set_on(runs)["mate", "little2"]) == ["low, GHz", "mid, GHz", "high, GHz"]
    assert not any(set_on(levels("free")).values())
    table = condition_table(levels("high"))
    assert (table.columns[1], table.columns[-1]) == ("CPUS", "START °C")
    assert {values[-1] for _, values in table.rows} == {"rest + 3"}


def test_a_clock_of_the_gpu_has_its_own_column() -> None:
    conditions = [{"cores": "little2", "freq": "free", "gpu_freq": f} for f in ("low", "mid")]
    runs = [measured("mate", facts=MATE, condition=condition) for condition in conditions]
    assert set_on(runs) == {("mate", "little2"): {"GPU low, GHz": "0.414", "GPU mid, GHz": "0.414"}}
    assert "gpu_freq: low and mid are the same clock on Mate (GPU: 0.414 GHz)" in page_of(runs)


def test_a_phone_that_changed_between_two_runs_has_both_clocks() -> None:
    first, second, _ = levels("low")
    later = replace(second, applied=AppliedCondition(clocks_khz={0: 980000}))
    assert set_on([first, later]) == {("mate", "little2"): {"low, GHz": "1.13 or 0.98"}}


def test_core_numbers_are_ranges() -> None:
    assert [format_cpus(each) for each in ((4, 5, 6, 7), (0, 2, 3), (7,), ())] == [
        *("4-7", "0,2-3", "7", "")
    ]


def test_a_plan_has_the_levels_by_height() -> None:
    planned = [
        planned_cell(MATE, Condition(cores="little2", freq=freq)) for freq in ("mid", "high", "low")
    ]
    table = condition_table(in_order([cell for cell in planned if cell is not None]))
    assert table.columns == (*("CORES", "CPUS", "low, GHz", "mid, GHz", "high, GHz", "START °C"),)
    assert [values[:5] for _, values in table.rows] == [("little2", "0-1", "1.13", "1.13", "1.86")]


def test_reports_without_applied_clocks_are_read_as_before() -> None:
    old = [replace(run, applied=NOTHING_APPLIED) for run in levels("low", "mid", "free")]
    assert same_applied_clocks(old) == ()
    assert condition_table(old).rows == ()
    assert "same clock on" not in page_of(old)


@pytest.mark.parametrize(
    "runs",
    [
        levels("low", "mid"),  # bars
        [*levels("low", "mid", "high"), *levels("low", "mid", "high", cores="all4")],  # a heat map
    ],
    ids=["bars", "heat map"],
)
def test_a_figure_does_not_show_one_clock_as_two(runs: list[MeasuredRun]) -> None:
    page = page_of(runs)
    figure = page.partition("Step time over")[2].partition("</figure>")[0]
    assert f"{TEXT}, so their results differ only by chance." in figure
    assert "9.51" in figure
    assert figure.count("= low</text>") == 1, "where the clocks differ, levels are compared"


def test_fractions_that_are_one_step_are_named_under_their_line() -> None:
    page = page_of(levels("0.6", "0.62", "0.95"))
    figure = page.partition("Step time over")[2].partition("</figure>")[0]
    assert "freq: 0.6 and 0.62 are the same clock on Mate (little2: 1.13 GHz)" in figure


def test_figures_with_different_clocks_have_no_such_text() -> None:
    page = page_of(levels("low", "high"))
    assert "are the same clock on" not in page
    assert "= low</text>" not in page


def test_a_page_has_the_clock_of_every_phone_and_point() -> None:
    runs = levels("low", "mid")
    page = page_of(runs)
    clocks = page.partition('<section id="clocks">')[2].partition("</section>")[0]
    assert clocks.count(">1.13</td>") == 2
    assert TEXT in clocks


def test_commands_and_exports_read_the_clock_from_the_stored_report(
    store: Database, tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        arguments = [*words, "--lab", str(tmp_path)]
        return CliRunner().invoke(farm, arguments, catch_exceptions=False).stdout

    store_runs(store, [*levels("low", "mid", "free"), *levels("high", cores="all4")], "stored")
    shown = run("sweep", "show", "stored")
    columns = "PHONE\tCORES\tCPUS\tlow, GHz\tmid, GHz\thigh, GHz\tSTART °C\n"
    assert f"{columns}Mate\tlittle2\t\t1.13\t1.13\tnot run\trest + 3\n" in shown
    assert "Mate\tall4\t\tnot run\tnot run\t1.86+2.4192\trest + 3\n" in shown
    assert TEXT in " ".join(shown.split())
    figures = json.loads(run("sweep", "show", "stored", "--json"))["figures"]
    assert {"0": 1860000, "2": 2419200} in [figure["clocks_khz"] for figure in figures]
    expected = {("low", "1.13"), ("mid", "1.13"), ("free", ""), ("high", "1.86+2.4192")}
    for table in ("figures", "outcomes", "ranking"):
        text = run("export", "stored", "--table", table, "--output", "-")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {(row["freq"], row["clock_ghz"]) for row in rows} == expected
    text = run("export", "stored", "--table", "ranking", "--format", "md", "--output", "-")
    assert "| 1.86+2.4192 |" in text


def test_a_comparison_says_where_both_sides_are_one_clock(store: Database, tmp_path: Path) -> None:
    def compare(*sides: str) -> tuple[str, list[dict[str, object]]]:
        words = ["compare", *sides, "--lab", str(tmp_path)]
        shown = CliRunner().invoke(farm, words, catch_exceptions=False)
        as_json = CliRunner().invoke(farm, [*words, "--json"], catch_exceptions=False)
        return shown.stderr, json.loads(as_json.stdout)["same_clocks"]

    low_and_mid = [*levels("low", "mid", "high"), *levels("low", "mid", "high", cores="all4")]
    store_runs(store, low_and_mid, "stored")
    text, found = compare("stored:freq=low", "freq=mid")
    assert f"{TEXT}: A and B differ there only by chance" in text
    assert [(one["cores"], one["levels"]) for one in found] == [("little2", ["low", "mid"])]
    for sides in (("stored:freq=low", "freq=high"), ("stored:cores=little2", "cores=all4")):
        text, found = compare(*sides)
        assert ("same clock" in text, found) == (False, [])
