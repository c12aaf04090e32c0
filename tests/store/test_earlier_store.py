"""A store of an earlier version migrates, and its results stay what they were.

earlier_lab/ is the lab folder of revision 0005, then called 0001, after two sweeps on virtual
phones, `before` (finished) and `cancelled`. It is never written again: a store of a user cannot be.
"""

import csv
import gzip
import json
from pathlib import Path
from statistics import geometric_mean

import pytest
from click.testing import CliRunner

from orchestrator.app.services.run_service import migrate_store
from orchestrator.cli import farm
from orchestrator.planning.states import RunState
from orchestrator.store.database import Database
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.sweep_queries import sweep_summaries
from workloads.lab.settings import Lab

EARLIER = Path(__file__).parent / "earlier_lab"
# The middle of four runs on two phones, as the version that measured them showed it.
STEP_MS = {"big2": 7.192346731270363, "little2": 29.886674163035128}


@pytest.fixture
def earlier(tmp_path: Path) -> Lab:
    """A lab folder of an earlier version, migrated."""
    root = tmp_path / "lab"
    root.mkdir()
    (root / "lab.toml").write_bytes((EARLIER / "lab.toml").read_bytes())
    (root / "farm.db").write_bytes(gzip.decompress((EARLIER / "farm.db.gz").read_bytes()))
    lab = Lab.read(root, {})
    migrate_store(lab)
    return lab


def ask(lab: Lab, *words: str) -> str:
    """Return what a command prints about the lab."""
    result = CliRunner().invoke(farm, [*words, "--lab", str(lab.root)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_sweeps_and_phones_of_an_earlier_store_are_known(earlier: Lab) -> None:
    db = Database(earlier.store_url)
    db.check()
    runs = {sweep.name: sweep.runs for sweep in sweep_summaries(db)}
    assert runs == {"before": {RunState.DONE: 8}, "cancelled": {RunState.CANCELLED: 8}}
    phones = {phone.serial: phone for phone in known_phones(db)}
    assert len(phones) == 6
    assert phones["VMI90001"].tags == ("desk",)
    db.close()


def test_results_of_an_earlier_store_are_compared_with_the_same_numbers(earlier: Lab) -> None:
    answer = json.loads(ask(earlier, "compare", "before:cores=big2", "cores=little2", "--json"))
    (row,) = answer["rows"]
    assert row["runs"] == [4, 4]
    assert row["medians"] == pytest.approx(list(STEP_MS.values()))


def test_results_of_an_earlier_store_are_exported(earlier: Lab, tmp_path: Path) -> None:
    file = tmp_path / "before.simulated.csv"
    ask(earlier, "export", "before", "--format", "csv", "-o", str(file))
    rows = [row for row in csv.DictReader(file.open()) if row["metric"] == "step_ms"]
    for cores, expected in STEP_MS.items():
        values = [float(row["value"]) for row in rows if row["cores"] == cores]
        assert len(values) == 4
        assert geometric_mean(values) == pytest.approx(expected, rel=0.001)
    assert {row["phone"] for row in rows} == {"VMI90001", "VS8P0001"}
    assert {row["source"] for row in rows} == {"simulated"}


def test_a_report_page_of_an_earlier_store_is_written(earlier: Lab, tmp_path: Path) -> None:
    page = tmp_path / "before.html"
    ask(earlier, "report", "before", "-o", str(page))
    assert "Galaxy S8+" in page.read_text()
