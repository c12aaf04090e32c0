"""The fleet table names whatever differs between its columns, on a terminal and in a pipe."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from orchestrator.app.compare_results import fleet_groups
from orchestrator.tui.fleet_table import FleetGrid, caption, fleet_grid, fleet_tables
from tests.analysis.builders import measured


def a_grid(*phones: str, **axis: Any) -> FleetGrid:
    """Build the table of a sweep with one axis of the case or of the condition."""
    ((name, values),) = axis.items()
    runs = []
    for value in values:
        for phone in phones:
            run = measured(phone, condition={} if name == "backend" else {name: value})
            if name == "backend":
                case = run.case.model_copy(update={"backend": value})
                run = measured(phone)
                run = type(run)(**{**vars(run), "case": case, "trial": f"{run.trial}-{value}"})
            runs.append(run)
    return fleet_grid(fleet_groups(runs), {phone: f"Model {phone}" for phone in phones})


@pytest.mark.parametrize("phones", ["a", "ab"])
def test_a_sweep_over_backends_is_shown_in_a_terminal(phones: str) -> None:
    grid = a_grid(*phones, backend=("cpu", "opencl"))
    console = Console(file=StringIO(), width=80)
    for table in fleet_tables(grid, 80):
        console.print(table)
    assert [heading[0] for heading in grid.headings] == ["cpu", "opencl"]
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "opencl" in printed
    assert "cpu" not in caption(grid)


def test_every_setting_of_a_condition_can_be_an_axis() -> None:
    grid = a_grid("a", "b", time_min_s=(5.0, 9.0))
    assert grid.headings == (("time_min_s=5.0",), ("time_min_s=9.0",))
    assert all(cell for row in grid.lines for cell in row)
