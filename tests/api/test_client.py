"""The Python client: the same answers from a lab of this computer and through its API."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.app_errors import InvalidState, NotAuthenticated, NotPermitted, TimedOut
from orchestrator.app.operation import Role
from orchestrator.client import Lab
from orchestrator.store.database import Database
from orchestrator.store.operator_change import Actor
from orchestrator.store.removal import remove_sweep
from tests.api.conftest import ApiLab
from workloads.protocol.faults import FarmError, InvalidRequest


@pytest.fixture(params=["here", "there"])
def lab(served: ApiLab, request: pytest.FixtureRequest) -> Lab:
    """The lab itself, and the same lab through its API."""
    if request.param == "here":
        return Lab(served.lab.root)
    return Lab(served.url, served.tokens[Role.OPERATOR])


def test_results_are_tables(lab: Lab) -> None:
    sweep = lab.sweep("small").wait(progress=True)
    assert (sweep.summary.done, sweep.summary.finished) == (9, True)
    figures = sweep.figures()
    steps = figures[(figures.metric == "step_ms") & (figures.phone == "VMI90001")]
    assert (len(steps), steps.value.median()) == (4, pytest.approx(14.0, rel=0.02))
    for table in (sweep.samples, sweep.readings, sweep.operations, sweep.ranking, sweep.outcomes):
        assert len(table()) > 1
    assert sweep.rows("figures")[0].keys() == set(figures.columns)
    assert {trial.phone for trial in sweep.trials()} == {"VM16T0001", "VMI90001"}
    assert [item.id for item in lab.sweeps()] == [sweep.id]


def test_the_rest_of_a_lab_is_typed(lab: Lab, tmp_path: Path) -> None:
    assert [phone.serial for phone in lab.phones("serial == 'VMI90001'")] == ["VMI90001"]
    assert lab.status().sweeps[0].name == "small"
    assert lab.hosts() == lab.call("list_hosts")
    trial = lab.sweep("small").trials(limit=1)[0]
    assert lab.trial(trial.id).summary == trial
    table = lab.compare("small:phone=VM16T0001", "small:phone=VMI90001", "step_ms")
    assert [row.verdict for row in table.rows] == ["slower"]
    sweep = lab.sweep("small")
    assert "<h1>" in sweep.save_report(tmp_path / "small.html").read_text()
    assert sweep.save_figure(tmp_path / "small.svg").read_bytes().startswith(b"<svg")


def test_an_operator_submits_waits_and_steers(lab: Lab, served: ApiLab) -> None:
    planned = lab.plan("examples/smoke.yaml")
    sweep = lab.submit("examples/smoke.yaml")
    try:
        assert sweep.summary.total == planned.runs > 0
        with pytest.raises(InvalidState, match="has no figures yet"):
            sweep.figures()
        assert sweep.note("a window is open").changed
        assert sweep.notes()[-1].text == "a window is open"
        with pytest.raises(TimedOut, match="runs left: 0 of"):
            sweep.wait(timeout_s=0)
        assert sweep.pause("lunch").changed
        with pytest.raises(InvalidState, match="does not continue by itself: the sweep is paused"):
            sweep.wait()
        assert sweep.resume().changed
    finally:
        assert sweep.cancel().changed
        assert sweep.refresh().summary.finished
        database = Database(served.lab.store_url)
        remove_sweep(database, sweep.id, Actor("tester"))
        database.close()


def test_mistakes_are_one_sentence(served: ApiLab, tmp_path: Path) -> None:
    here, viewer = Lab(served.lab.root), Lab(served.url, served.tokens[Role.VIEWER])
    for act, kind, text in (
        (lambda: here.sweep("none"), InvalidRequest, "none"),
        (lambda: here.submit(tmp_path / "none.yaml"), InvalidRequest, "cannot be read"),
        (lambda: here.call("pause_swep"), InvalidRequest, "did you mean 'pause_sweep'"),
        (lambda: here.sweep("small").table("figure"), InvalidRequest, "cannot be exported; use"),
        (lambda: viewer.submit("examples/smoke.yaml"), NotPermitted, "needs the role operator"),
        (lambda: Lab(served.url, "wrong").sweeps(), NotAuthenticated, "the token is unknown"),
        (lambda: Lab(tmp_path / "nothing").sweeps(), FarmError, "start the lab with"),
    ):
        with pytest.raises(kind, match=text) as raised:
            act()
        assert "\n" not in str(raised.value)


def test_pandas_is_needed_for_tables_only(served: ApiLab) -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from orchestrator.client import Lab\n"
        "sweep = Lab(sys.argv[1]).sweep('small')\n"
        "print(len(sweep.rows('ranking')) > 1)\n"
        "sweep.ranking()\n"
    )
    command = [sys.executable, "-c", code, str(served.lab.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "True\n"
    assert re.search(r"InvalidRequest: pandas is not installed; .* rows\('ranking'\)$", done.stderr)
