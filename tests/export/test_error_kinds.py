"""Values of each kind of source, drawn through every output that shows an interval."""

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis.fleet_ranking import FleetGroup, compare_fleet
from orchestrator.export.federated import CONSUMERS, write_consumer_files
from orchestrator.export.report.details import cells_section
from orchestrator.export.report.page import render_page
from orchestrator.export.report.paper_table import paper_table
from orchestrator.export.report.report_data import ReportInput, collect_report_data
from orchestrator.export.table_schemas import ranking_table
from orchestrator.selection.population import PopulationPlan
from orchestrator.tui.fleet_table import caption, fleet_grid
from tests.analysis.builders import EXTRAPOLATED, HOST, MEASURED, measured
from tests.export.test_csv_export import read_back
from tests.export.test_federated import LINK, WORK
from tests.selection.fleets import a_client_table
from tests.study.test_claim_table import MEIZU, evidence, observe, rows_for
from workloads.protocol.metrics import Provenance, SimulationModel, Source

FITTED = Provenance(source=Source.SIMULATED, model=SimulationModel.FITTED, error_rel=0.49)
UNCALIBRATED = Provenance(source=Source.SIMULATED, model=SimulationModel.UNCALIBRATED)
MODEL_HALF = 2.228 * math.sqrt(math.pi / 2) * 0.49  # of 95 %, on the scale of the errors
KINDS = {
    kind: pytest.param(kind, id=str(kind)[:24])
    for kind in (MEASURED, HOST, FITTED, EXTRAPOLATED, UNCALIBRATED)
}
each_kind = pytest.mark.parametrize("kind", KINDS.values())
each_value = pytest.mark.parametrize(
    ("metric", "value"), [("step_ms", 10.0), ("energy_per_sample_mj", 5.0), ("copy_share", 0.711)]
)


def scattered(value: float) -> list[float]:
    return [value * (1 + scatter / 1000) for scatter in (-2, 1, 0, 2, -1)]


def a_group(kind: Provenance, metric: str, value: float) -> tuple[ReportInput, FleetGroup]:
    figures: list[dict[str, Any]] = [{"step_ms": 10.0, metric: each} for each in scattered(value)]
    runs = [
        measured("a", repeat=repeat, provenance=kind, **each) for repeat, each in enumerate(figures)
    ]
    (group,) = compare_fleet(runs, metric).groups
    return ReportInput(runs), group


def looks_right(kind: Provenance, value: float, low: float, high: float, share: bool) -> bool:
    """Return whether an interval is no narrower than what is known, and not much wider."""
    ratio = [end / value * ((1 - value) / (1 - end) if share else 1) for end in (low, high)]
    half = MODEL_HALF if kind == FITTED else 0.0
    return all(half * 0.98 <= abs(math.log(each)) <= half * 1.02 + 0.03 for each in ratio)


@each_kind
@each_value
def test_a_ranking_and_a_screen(kind: Provenance, metric: str, value: float) -> None:
    given, group = a_group(kind, metric, value)
    (row,) = read_back(ranking_table(7, [compare_fleet(given.runs, metric)]))
    grid = fleet_grid([group], {"a": "Model a"})
    ((_, cell),) = grid.lines
    assert row["source"] == kind.source.value
    if kind.error_unknown:
        assert (row["low"], row["high"], row["interval"]) == ("", "", "error unknown")
        assert row["claim"] == "simulated, error unknown"
        assert not re.search(r"±| to ", cell), "the scatter of a simulation is no error"
        assert "simulated, error unknown" in caption(grid)
        return
    low, high = float(row["low"]), float(row["high"])
    assert looks_right(kind, value, low, high, metric == "copy_share")
    if kind == FITTED:
        ends = re.search(r"\(([\d.]+) to ([\d.]+)\)", cell)
        assert ends
        assert [*map(float, ends.groups())] == pytest.approx([low, high], rel=0.01)
    else:
        assert "±" in cell


def test_a_table_of_a_paper_names_the_source_of_each_row_where_they_differ() -> None:
    runs = [
        measured(name, 10.0 + index, repeat=repeat, provenance=kind)
        for index, (name, kind) in enumerate((("a", FITTED), ("b", UNCALIBRATED)))
        for repeat in range(5)
    ]
    mixed, one = (paper_table("x", [compare_fleet(each)]) for each in (runs, runs[:5]))
    assert mixed.names[-1] == "source"
    assert {row[0]: row[-1] for row in mixed.rows} == {
        "Model a": str(FITTED),
        "Model b": str(UNCALIBRATED),
    }
    assert "source" not in one.names
    assert str(FITTED) in one.caption


@each_kind
def test_a_report(kind: Provenance) -> None:
    given, _ = a_group(kind, "step_ms", 10.0)
    (row,) = cells_section(collect_report_data(given)).rows
    page = render_page("one", given)
    if kind.error_unknown:
        assert "simulated, error unknown" in row
        assert "(simulated, error unknown)" in page
        assert not re.search(r"9\.\d+ to 10\.\d", page)
        return
    low, high = next(map(float, re.findall("[0-9.]+", c)) for c in row if re.match(r"\d.* to ", c))
    assert looks_right(kind, 10.0, low, high, share=False)


@each_kind
@each_value
def test_a_study(kind: Provenance, metric: str, value: float) -> None:
    found = evidence(observe(MEIZU, metric, *scattered(value), made=kind))
    (row,) = rows_for(found, value=value, query={"kind": "value", "metric": metric})
    text = row.result_text
    if kind.error_unknown:
        assert not re.search(r"±| to ", text)
        assert "error unknown" in row.source
        return
    assert row.result
    assert looks_right(kind, value, *row.result.widen(value, value), metric == "copy_share")
    assert (" to " in text) == (kind == FITTED)


@each_kind
def test_clients(kind: Provenance, tmp_path: Path) -> None:
    table, plan = a_client_table(provenance=kind), PopulationPlan(links=LINK)
    write_consumer_files(CONSUMERS["csv"], table, tmp_path, plan, WORK, True)
    (file,) = tmp_path.glob("clients*.csv")
    for row in csv.DictReader(io.StringIO(file.read_text())):
        for name in ("cold_ms_per_sample", "energy_mj_per_sample"):
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            assert row[f"{name}_source"] == str(kind)
            if kind.error_unknown:
                assert (low, high) == ("", "")
            elif kind == FITTED:
                factor = math.exp(MODEL_HALF)
                assert float(high) >= factor * float(row[name]) * 0.98
                assert 0 < float(low) <= float(row[name]) / factor * 1.02
            else:
                assert 0 < float(low) <= float(row[name]) <= float(high)
